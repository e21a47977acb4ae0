//go:build !unix

package proc

import "syscall"

// newSession has nothing to ask for where there are no sessions.
func newSession() *syscall.SysProcAttr { return nil }

const noWait = 0
