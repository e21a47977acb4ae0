//go:build darwin || freebsd

package pty

import "golang.org/x/sys/unix"

// fread is FREAD of <sys/fcntl.h>: TIOCFLUSH with it drops what waits to be read.
const fread = 1

func discard(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, fread) }
