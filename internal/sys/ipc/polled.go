package ipc

import "os"

// Polled returns what is read from f, or written to it, as a stream that the runtime
// waits for together with all others, and not with a thread in read(2); while one is
// there, nobody else may look at the network for up to 10 ms. It is f itself where that
// is not possible, or would change f for other processes. others are the standard
// streams besides f. done must be called when nothing is read or written any more.
func Polled(f *os.File, others ...*os.File) (polledFile *os.File, done func()) {
	return polled(f, others)
}
