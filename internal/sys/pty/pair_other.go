//go:build !(linux || darwin || freebsd)

package pty

import (
	"context"
	"errors"
	"io"
	"os"
)

// IsTerminal reports whether f is a terminal: not known here.
func IsTerminal(*os.File) bool { return false }

// Open makes a pseudo-terminal: not here.
func Open(*os.File) (master, slave *os.File, err error) { return nil, nil, errors.ErrUnsupported }

// Relay connects the person's terminal with master: not here.
func Relay(context.Context, io.Writer, *os.File) error { return errors.ErrUnsupported }
