//go:build !linux

package subtree

import (
	"errors"
	"os"
	"time"
)

// Open is not to be had here, so no Dir exists.
func Open(string) (*Dir, error) { return nil, errors.ErrUnsupported }

// Again is not to be had here.
func (d *Dir) Again() (*Dir, error) { return nil, errors.ErrUnsupported }

// Self is not to be had here.
func (d *Dir) Self() (Info, error) { return Info{}, errors.ErrUnsupported }

// Lstat is not to be had here.
func (d *Dir) Lstat(string) (Info, error) { return Info{}, errors.ErrUnsupported }

// Open is not to be had here.
func (d *Dir) Open(string) (*Dir, error) { return nil, errors.ErrUnsupported }

// OpenFile is not to be had here.
func (d *Dir) OpenFile(string) (*os.File, Info, error) { return nil, Info{}, errors.ErrUnsupported }

// InfoOf is not to be had here.
func InfoOf(*os.File) (Info, error) { return Info{}, errors.ErrUnsupported }

// Readlink is not to be had here.
func (d *Dir) Readlink(string) (string, error) { return "", errors.ErrUnsupported }

// Attr is not to be had here.
func (d *Dir) Attr(string) (string, bool, error) { return "", false, errors.ErrUnsupported }

// AttrOf is not to be had here.
func AttrOf(*os.File, string) (string, bool, error) { return "", false, errors.ErrUnsupported }

// Create is not to be had here.
func (d *Dir) Create(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Mkdir is not to be had here.
func (d *Dir) Mkdir(string, uint32) error { return errors.ErrUnsupported }

// Symlink is not to be had here.
func (d *Dir) Symlink(string, string) error { return errors.ErrUnsupported }

// Rename is not to be had here.
func (d *Dir) Rename(string, string) error { return errors.ErrUnsupported }

// RenameNew is not to be had here.
func (d *Dir) RenameNew(string, string) error { return errors.ErrUnsupported }

// Remove is not to be had here.
func (d *Dir) Remove(string) error { return errors.ErrUnsupported }

// RemoveDir is not to be had here.
func (d *Dir) RemoveDir(string) error { return errors.ErrUnsupported }

// Exchange is not to be had here.
func (d *Dir) Exchange(string, string) error { return errors.ErrUnsupported }

// Chmod is not to be had here.
func (d *Dir) Chmod(string, uint32) error { return errors.ErrUnsupported }

// ChmodSelf is not to be had here.
func (d *Dir) ChmodSelf(uint32) error { return errors.ErrUnsupported }

// Chown is not to be had here.
func (d *Dir) Chown(string, int, int) error { return errors.ErrUnsupported }

// Touch is not to be had here.
func (d *Dir) Touch(string, time.Time) error { return errors.ErrUnsupported }

// Sync is not to be had here.
func (d *Dir) Sync() error { return errors.ErrUnsupported }

// Clone is not to be had here.
func Clone(*os.File, *os.File) (bool, error) { return false, errors.ErrUnsupported }

// Copy is not to be had here.
func Copy(*os.File, *os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

// RemoveAll is not to be had here.
func (d *Dir) RemoveAll(string) error { return errors.ErrUnsupported }
