// Package inplace overwrites parts of a file whose length never changes.
//
// Where the blocks of the file were written before, flushing it is the least that a
// disk can be asked for: its content, and nothing about the file. It does not make the
// file (see atomicfile), and knows nothing of what is in it.
//
// Invariants:
//
//	N1  Only a regular file is opened, never what a link leads to.
//	N2  When WriteAt returns nil the bytes are in the files of the operating
//	    system: they survive the end of this process, however it ends.
//	N3  When Sync returns nil, everything that was written before Sync was called is
//	    on disk. A write that overlaps no other never changes what is beside it.
package inplace

import (
	"fmt"
	"os"
)

// A File is open to be overwritten. Its methods may be called from any goroutine.
type File struct {
	f    *os.File
	size int64
}

// Open opens the file at path. It must exist.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%v)", path, fi.Mode())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return &File{f, fi.Size()}, nil
}

// Size returns the length of the file in bytes, as it was when it was opened.
func (f *File) Size() int64 { return f.size }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, at int64) (int, error) { return f.f.ReadAt(b, at) }

// WriteAt implements io.WriterAt. What does not fit into the file is refused.
func (f *File) WriteAt(b []byte, at int64) (int, error) {
	if at < 0 || at > f.size || int64(len(b)) > f.size-at {
		return 0, fmt.Errorf("writing %s: %d bytes at %d are not within its %d", f.f.Name(), len(b), at, f.size)
	}
	return f.f.WriteAt(b, at)
}

// Sync puts on disk what has been written (N3).
func (f *File) Sync() error { return syncData(f.f) }

// Close closes the file. It flushes nothing.
func (f *File) Close() error { return f.f.Close() }
