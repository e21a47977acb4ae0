// Package pty is about terminals: for now, the one that a person sits at.
//
// It does not decide who may use it: a verb that asks there must own it, so that
// no agent can write to it.
//
// Invariants:
//
//	P1  What was typed before Discard is never read after it.
//	P2  A read ends at its deadline.
package pty

import (
	"errors"
	"io"
	"time"
)

// ErrNoTerminal says that this process has no controlling terminal: ask somewhere
// else.
var ErrNoTerminal = errors.New("no terminal")

// A Terminal is the controlling terminal of this process.
type Terminal interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	// Discard drops what was typed and not read yet.
	Discard() error
}
