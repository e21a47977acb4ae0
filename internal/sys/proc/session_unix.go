//go:build unix

package proc

import "syscall"

// noWait keeps opening a pipe from waiting for its other end.
const noWait = syscall.O_NONBLOCK

// newSession makes the child leader of a new session without a terminal.
func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
