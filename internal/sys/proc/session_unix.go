//go:build unix

package proc

import "syscall"

// newSession makes the child leader of a new session without a terminal.
func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
