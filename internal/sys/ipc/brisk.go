package ipc

import "io"

// BriskReader returns r, or what reads from it with less ado. Every system call tells
// the runtime that its thread may be gone for long, and in a process that slept the
// first one wakes the runtime's watcher, which looks for such threads for a
// millisecond and more. What reads short messages that are there already needs none of
// that. Reading goes on in the usual way behind what fills the buffer, because who
// watches is needed where there is much to do.
//
// r is returned as it is unless the runtime waits for it without a thread: a pipe or
// socket of package os or net. One goroutine at a time may read.
func BriskReader(r io.Reader) io.Reader { return briskReader(r) }

// BriskWriter is [BriskReader] for writing.
func BriskWriter(w io.Writer) io.Writer { return briskWriter(w) }

// briskMost is how much is written in one system call that the runtime is not told
// of, in bytes.
const briskMost = 64 << 10
