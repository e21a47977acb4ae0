// Package atomicfile writes whole files so that a reader, or a crash at any
// moment, meets either the old content or the new, never a part of it.
//
// It is not for appending, for large streams, or for files that several
// writers share: the last rename wins.
//
// Invariants:
//
//	F1  The content is on disk before the name points to it, and the name is on
//	    disk before the call returns. Only [WriteSoon] promises less.
//	F2  The target is never opened, so a link planted in its place is replaced,
//	    not followed.
//	F3  On error the target is as it was, and no temporary file is left behind
//	    unless the process died.
package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Write replaces the file at path with data, with exactly the permissions mode
// (the umask is not applied). The directory must exist. Concurrent calls leave
// the content of one of them.
func Write(path string, data []byte, mode os.FileMode) error {
	return place(path, data, mode, len(data), os.Rename)
}

// WriteBlocks is [Write] for a file that will be changed in place, a little at a time: it
// is written in pieces of a page. A kernel may keep what was written at once as one large
// page, and look through all of it at each change.
func WriteBlocks(path string, data []byte, mode os.FileMode) error {
	return place(path, data, mode, 4096, os.Rename)
}

// WriteSoon is [Write] for what is of use to this run of the machine only: it does not
// wait for the disk. Whoever reads it after the machine has lost power meets the old
// content, the new, an empty file or none.
func WriteSoon(path string, data []byte, mode os.FileMode) error {
	temp, err := writeTemp(path, data, mode, len(data), false)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("writing %s: naming the new file: %w", path, errors.Join(err, os.Remove(temp)))
	}
	return nil
}

// WriteOutput is [Write] for a path that a person named for output. Of a link its target
// is replaced; what is there and is no regular file, such as /dev/stderr or a pipe, is
// written to and stays what it is.
func WriteOutput(path string, data []byte, mode os.FileMode) error {
	fi, err := os.Stat(path)
	if err != nil || fi.IsDir() {
		return Write(path, data, mode) // a link that leads nowhere is replaced
	}
	if fi.Mode().IsRegular() {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return Write(path, data, mode)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// CreateNew is [Write] for a path at which nothing may exist yet; otherwise the
// error is fs.ErrExist and the file there is untouched. Of several concurrent
// calls exactly one succeeds. The file system must have hard links.
func CreateNew(path string, data []byte, mode os.FileMode) error {
	return place(path, data, mode, len(data), func(temp, path string) error {
		if err := os.Link(temp, path); err != nil {
			return err
		}
		return os.Remove(temp)
	})
}

// place writes a temporary file beside path and has publish give it its name.
func place(path string, data []byte, mode os.FileMode, piece int, publish func(temp, path string) error) (err error) {
	temp, err := writeTemp(path, data, mode, piece, true)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := publish(temp, path); err != nil {
		return fmt.Errorf("writing %s: naming the new file: %w", path, errors.Join(err, os.Remove(temp)))
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: flushing its directory: %w", path, err)
	}
	return nil
}

// writeTemp writes data, piece by piece, under a fresh name in the directory of path, to
// the disk or, unless flush, on its way there.
func writeTemp(path string, data []byte, mode os.FileMode, piece int, flush bool) (temp string, err error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("choosing a temporary name: %w", err)
	}
	dir, base := filepath.Split(path)
	temp = filepath.Join(dir, "."+base+"."+hex.EncodeToString(random[:])+".tmp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return "", fmt.Errorf("creating a temporary file: %w", err)
	}
	step := func(doing string, stepErr error) {
		if stepErr != nil && err == nil {
			err = fmt.Errorf("%s the temporary file: %w", doing, stepErr)
		}
	}
	for b := range slices.Chunk(data, max(piece, 1)) {
		if _, writeErr := f.Write(b); writeErr != nil {
			step("filling", writeErr)
			break
		}
	}
	step("setting the mode of", f.Chmod(mode.Perm()))
	if flush {
		step("flushing", f.Sync())
	}
	step("closing", f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}
