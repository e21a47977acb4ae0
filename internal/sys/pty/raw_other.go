//go:build !linux && !darwin && !freebsd

package pty

import (
	"context"
	"os"
	"time"
)

// A Size is that of a terminal, in characters. A zero member is not known.
type Size struct{ Rows, Columns uint16 }

// SetSize is not to be had here.
func SetSize(*os.File, Size) error { return ErrNoTerminal }

// A Raw is the controlling terminal of this process while it passes every byte on; here
// there is none.
type Raw struct{}

// OpenRaw returns ErrNoTerminal.
func OpenRaw() (*Raw, error) { return nil, ErrNoTerminal }

// Raw is not to be had here.
func (*Raw) Raw() error { return ErrNoTerminal }

// Cooked is not to be had here.
func (*Raw) Cooked() error { return ErrNoTerminal }

// Read is not to be had here.
func (*Raw) Read([]byte) (int, error) { return 0, ErrNoTerminal }

// ReadWithin is not to be had here.
func (*Raw) ReadWithin([]byte, time.Duration) (int, error) { return 0, ErrNoTerminal }

// Size is not to be had here.
func (*Raw) Size() (Size, error) { return Size{}, ErrNoTerminal }

// Resized does nothing.
func (*Raw) Resized(context.Context, func(Size)) {}

// Restore does nothing.
func (*Raw) Restore() error { return nil }

// Gone is false here.
func Gone(error) bool { return false }
