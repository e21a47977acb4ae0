// Package look says what is at a path, without following the last link and
// without opening anything.
//
// It is not a resolver: it takes one path and asks the system once. Callers walk.
//
// Invariants:
//
//	K1  Plain returns true only if no component of the path was a symbolic link
//	    when the kernel walked it, all in one system call.
package look

import "io/fs"

// An Info is what the system says of one file.
type Info struct {
	Mode  fs.FileMode
	Links uint64 // how many names it has; 1 where the system does not say
}

// IsDir reports whether it is a directory.
func (i Info) IsDir() bool { return i.Mode.IsDir() }

// IsLink reports whether it is a symbolic link.
func (i Info) IsLink() bool { return i.Mode&fs.ModeSymlink != 0 }

// Lstat returns what is at path. A link is reported as itself. Errors are those
// of [os.Lstat].
func Lstat(path string) (Info, error) { return lstat(path) }

// Plain returns what is at an absolute path that has no ".." and goes through no
// link; ok is false if it goes through one, if nothing is there, or if the system
// cannot tell in one call. Then the path must be walked.
func Plain(path string) (info Info, ok bool) { return plain(path) }

// Settled reports whether path is a directory in which nobody but the administrator can
// make or replace anything; false where the system does not say.
func Settled(path string) bool { return settled(path) }
