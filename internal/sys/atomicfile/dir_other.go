//go:build !unix

package atomicfile

const noFollow = 0

// syncDir does nothing: these systems cannot flush a directory, and write names
// through.
func syncDir(string) error { return nil }
