// Package subtree works on the files beneath one directory that others may have
// filled: by open directories and single names, so that nothing it does reaches
// anything else.
//
// It takes no paths of more than one name, but for the root, and it knows nothing of
// what the files are for.
//
// Invariants:
//
//	T1  No symbolic link is followed, no mount point is crossed, and no name leads
//	    upwards: each step is one name in an open directory (openat2(2)).
//	T2  Nothing but regular files and directories is ever opened, so nothing blocks
//	    and no device is touched.
//	T3  Descriptors in use do not grow with the depth of a tree that is removed.
package subtree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

var (
	// ErrTooMany says that a directory has more entries than the caller takes.
	ErrTooMany = errors.New("too many entries in a directory")
	// ErrKind says that something stands there that is not of the kind wanted.
	ErrKind = errors.New("not of the expected kind")
	// ErrTooMuch says that a file has more data than the caller takes.
	ErrTooMuch = errors.New("too much data in a file")
)

// A Kind is what stands at a name.
type Kind uint8

// The kinds. The zero Kind is what no caller should touch: devices, pipes, sockets.
const (
	Other Kind = iota
	File
	Directory
	Link
	Null // a character device 0:0, with which overlay file systems mark what is gone
)

// String is the kind for people.
func (k Kind) String() string {
	switch k {
	case File:
		return "file"
	case Directory:
		return "directory"
	case Link:
		return "symbolic link"
	case Null:
		return "mark of a deletion"
	default:
		return "device, pipe or socket"
	}
}

// An Info is what the system says of one entry.
type Info struct {
	Kind     Kind
	Perm     uint32 // permission bits with setuid (04000), setgid (02000) and sticky (01000)
	Size     int64
	Modified time.Time // of the content
	Changed  time.Time // of anything: content, mode, owner, names (st_ctime)
	UID, GID int
	Dev, Ino uint64
	Links    uint64 // names that the inode has
	Data     int64  // bytes that it takes, holes left out, as far as the file system tells
}

// Same reports whether i and j are the same inode in the same state.
func (i Info) Same(j Info) bool {
	return i.Dev == j.Dev && i.Ino == j.Ino && i.Size == j.Size && i.Modified.Equal(j.Modified) && i.Changed.Equal(j.Changed)
}

// A Dir is an open directory. The zero Dir is not usable.
type Dir struct{ f *os.File }

// Close lets go of the directory.
func (d *Dir) Close() error { return d.f.Close() }

// Names returns the names in d, in no order. With more than limit of them the error
// is [ErrTooMany].
func (d *Dir) Names(limit int) ([]string, error) {
	again, err := d.Again()
	if err != nil {
		return nil, err
	}
	defer again.Close() //nolint:errcheck // nothing was written
	names, err := again.f.Readdirnames(limit + 1)
	if len(names) > limit {
		return nil, fmt.Errorf("%w: more than %d", ErrTooMany, limit)
	}
	if len(names) == 0 {
		return nil, nil // at the end Readdirnames says io.EOF
	}
	for err == nil && len(names) <= limit {
		var more []string
		if more, err = again.f.Readdirnames(limit + 1 - len(names)); len(more) == 0 {
			break
		}
		names = append(names, more...)
	}
	if len(names) > limit {
		return nil, fmt.Errorf("%w: more than %d", ErrTooMany, limit)
	}
	return names, nil
}

// single refuses what is not one name.
func single(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a name in a directory: %w", name, fs.ErrInvalid)
	}
	return nil
}
