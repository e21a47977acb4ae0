//go:build !linux && !darwin && !freebsd

package pty

import "context"

// ReadSecret is not supported on this system.
func ReadSecret(context.Context, string) ([]byte, error) { return nil, ErrNoTerminal }
