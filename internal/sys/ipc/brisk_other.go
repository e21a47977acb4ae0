//go:build !linux

package ipc

import "io"

func briskReader(r io.Reader) io.Reader { return r }
func briskWriter(w io.Writer) io.Writer { return w }
