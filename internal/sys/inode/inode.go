// Package inode asks the kernel for what package os does not: when a file was made
// and last read, who owns it, and a rename that replaces nothing.
//
// It resolves no paths: everything works on open files and on names directly in an
// open directory. Keeping a path inside a root is the business of [os.Root].
//
// Invariants:
//
//	I1  [RenameNoReplace] never replaces what stands at the new name.
//	I2  What a platform cannot tell is the zero time or [errors.ErrUnsupported],
//	    never a guess.
package inode

import "time"

// Times are those that [os.FileInfo] lacks. A zero time is not known.
type Times struct {
	Born     time.Time // when the inode was made
	Accessed time.Time // when its content was last read, as far as the mount keeps track
}
