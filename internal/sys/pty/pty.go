// Package pty is about terminals: the one that a person sits at, and pairs made
// for what runs in a box.
//
// It does not decide who may use a terminal: a verb that asks at one must own it,
// so that no agent can write to it. It reads nothing into what is relayed.
//
// Invariants:
//
//	P1  What was typed before Discard is never read after it.
//	P2  A read ends at its deadline.
//	P3  When Relay returns, the person's terminal is as it was.
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
