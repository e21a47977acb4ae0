//go:build !linux && !darwin && !freebsd

package pty

// Controlling is not supported on this system.
func Controlling() (Terminal, error) { return nil, ErrNoTerminal }
