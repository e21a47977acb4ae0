package ipc

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked says that another process holds the lock. Talk to that process
// instead.
var ErrLocked = errors.New("locked by another process")

// A Lock is held by one process on one machine, from [NewLock] until Unlock or
// the end of the process, however it ends.
type Lock struct{ f *os.File }

// NewLock takes the lock that is the file at path, mode 0600, made if missing.
// It does not wait: the error is [ErrLocked] if the lock is held, also by this
// process. The file is never removed, because a lock on a removed file guards
// nothing.
func NewLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	if err := lockFile(f); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, errors.Join(err, f.Close()))
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		named, err = os.Stat(path)
		if err == nil && !os.SameFile(held, named) {
			err = errors.New("the lock file was replaced")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, errors.Join(err, f.Close()))
	}
	return &Lock{f}, nil
}

// Unlock gives the lock back.
func (k *Lock) Unlock() error { return k.f.Close() }
