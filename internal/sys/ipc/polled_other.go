//go:build !linux

package ipc

import "os"

// polled leaves f as it is: here it cannot be known who else has it.
func polled(f *os.File, _ []*os.File) (*os.File, func()) { return f, func() {} }
