package inode

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TimesOf returns the times of an open file (statx(2)).
func TimesOf(f *os.File) (Times, error) {
	var st unix.Statx_t
	err := control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_ATIME, &st)
	})
	if err != nil {
		return Times{}, fmt.Errorf("reading times: %w", err)
	}
	var t Times
	if st.Mask&unix.STATX_BTIME != 0 {
		t.Born = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	if st.Mask&unix.STATX_ATIME != 0 {
		t.Accessed = time.Unix(st.Atime.Sec, int64(st.Atime.Nsec))
	}
	return t, nil
}

// OwnerOf returns whose a file is; known is false where files have no such owner.
func OwnerOf(fi fs.FileInfo) (uid, gid int, known bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// KeepOwner gives f the owner and group that was has, if they differ. was must
// come from package os.
func KeepOwner(f *os.File, was fs.FileInfo) error {
	old, ok := was.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("keeping owner: no owner known: %w", fs.ErrInvalid)
	}
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("keeping owner: %w", err)
	}
	now, ok := fi.Sys().(*syscall.Stat_t)
	if ok && now.Uid == old.Uid && now.Gid == old.Gid {
		return nil
	}
	if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil {
		return fmt.Errorf("keeping owner: %w", err)
	}
	return nil
}

// RenameNoReplace renames entry from of directory dir to entry to of directory
// toDir. If something is there the error is [fs.ErrExist]; where the file system
// cannot do that in one step it is [errors.ErrUnsupported], and nothing happened.
// from and to are single names.
func RenameNoReplace(dir *os.File, from string, toDir *os.File, to string) error {
	if strings.ContainsRune(from, '/') || strings.ContainsRune(to, '/') {
		return fmt.Errorf("renaming %q to %q: %w", from, to, fs.ErrInvalid)
	}
	return control(dir, func(a int) error {
		return control(toDir, func(b int) error {
			err := unix.Renameat2(a, from, b, to, unix.RENAME_NOREPLACE)
			// EINVAL is what file systems say that do not know the flag, and
			// also to a directory that would move into itself.
			if err == unix.EINVAL || err == unix.ENOSYS {
				return fmt.Errorf("renaming without replacing: %w: %w", syscall.ENOTSUP, err)
			}
			return err
		})
	})
}

// control runs use with the descriptor of f, which stays open meanwhile and keeps
// its blocking mode, unlike with f.Fd.
func control(f *os.File, use func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = use(int(fd)) }); err != nil {
		return err
	}
	return inner
}
