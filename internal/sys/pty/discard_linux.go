package pty

import "golang.org/x/sys/unix"

func discard(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
