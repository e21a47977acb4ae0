//go:build !linux

package inode

import (
	"errors"
	"io/fs"
	"os"
)

// TimesOf knows no times here.
func TimesOf(*os.File) (Times, error) { return Times{}, nil }

// OwnerOf knows no owner here.
func OwnerOf(fs.FileInfo) (uid, gid int, known bool) { return 0, 0, false }

// KeepOwner leaves the owner as it is.
func KeepOwner(*os.File, fs.FileInfo) error { return nil }

// RenameNoReplace is not to be had here.
func RenameNoReplace(*os.File, string, *os.File, string) error { return errors.ErrUnsupported }
