package subtree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Open opens a directory by its absolute path, on which no symbolic link may be.
func Open(path string) (*Dir, error) {
	fd, err := open2(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Dir{os.NewFile(uintptr(fd), path)}, nil
}

// beneath is how a name in an open directory is resolved (T1).
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// open2 is openat2(2), Linux 5.6, again while the kernel says that something moved.
func open2(dir int, name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: resolve}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	if flags&unix.O_PATH != 0 {
		how.Flags &^= unix.O_NONBLOCK
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR && err != unix.EAGAIN || tries > 100 {
			return fd, err
		}
	}
}

// in runs use with the descriptor of d and a name that is checked.
func (d *Dir) in(op, name string, use func(fd int) error) error {
	err := single(name)
	if err == nil {
		err = control(d.f, use)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

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

// Again opens d anew, so that reading starts at its beginning.
func (d *Dir) Again() (*Dir, error) {
	var fd int
	err := control(d.f, func(at int) (err error) {
		fd, err = open2(at, ".", unix.O_RDONLY|unix.O_DIRECTORY, beneath)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a directory again: %w", err)
	}
	return &Dir{os.NewFile(uintptr(fd), d.f.Name())}, nil
}

// Self says what d is.
func (d *Dir) Self() (Info, error) { return InfoOf(d.f) }

// InfoOf says what an open file is.
func InfoOf(f *os.File) (Info, error) {
	var st unix.Stat_t
	if err := control(f, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return Info{}, fmt.Errorf("looking at an open file: %w", err)
	}
	return infoOf(&st), nil
}

// Lstat says what stands at name.
func (d *Dir) Lstat(name string) (Info, error) {
	var st unix.Stat_t
	err := d.in("lstat", name, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return infoOf(&st), err
}

func infoOf(st *unix.Stat_t) Info {
	i := Info{
		Perm: st.Mode & 0o7777, Size: st.Size, UID: int(st.Uid), GID: int(st.Gid), Dev: uint64(st.Dev), Ino: st.Ino, Links: uint64(st.Nlink), Data: st.Blocks * 512, //nolint:unconvert // differs by architecture
		Modified: time.Unix(st.Mtim.Unix()), Changed: time.Unix(st.Ctim.Unix()),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		i.Kind = File
	case unix.S_IFDIR:
		i.Kind = Directory
	case unix.S_IFLNK:
		i.Kind = Link
	case unix.S_IFCHR:
		if st.Rdev == 0 {
			i.Kind = Null
		}
	}
	return i
}

// Open opens the directory name. The error is ENOTDIR, ELOOP or EXDEV where something
// else stands there, or another file system is mounted.
func (d *Dir) Open(name string) (*Dir, error) {
	var fd int
	err := d.in("open", name, func(at int) (err error) {
		fd, err = open2(at, name, unix.O_RDONLY|unix.O_DIRECTORY, beneath)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Dir{os.NewFile(uintptr(fd), name)}, nil
}

// OpenFile opens the regular file name for reading, and says what it is. The error is
// [ErrKind] if anything else stands there.
func (d *Dir) OpenFile(name string) (*os.File, Info, error) {
	info, err := d.Lstat(name) // a device must not even be opened
	if err == nil && info.Kind != File {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrKind}
	}
	if err != nil {
		return nil, Info{}, err
	}
	f, err := d.openat("open", name, unix.O_RDONLY)
	if err != nil {
		return nil, Info{}, err
	}
	if info, err = InfoOf(f); err == nil && info.Kind != File {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrKind}
	}
	if err != nil {
		return nil, Info{}, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Create makes the regular file name, mode 0600, at which nothing may be, and opens
// it for writing.
func (d *Dir) Create(name string) (*os.File, error) {
	return d.openat("create", name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
}

func (d *Dir) openat(op, name string, flags uint64) (f *os.File, err error) {
	err = d.in(op, name, func(at int) error {
		fd, err := open2(at, name, flags, beneath)
		if err == nil {
			f = os.NewFile(uintptr(fd), name)
		}
		return err
	})
	return f, err
}

// Readlink returns where the symbolic link name leads.
func (d *Dir) Readlink(name string) (string, error) {
	b := make([]byte, unix.PathMax)
	var n int
	err := d.in("readlink", name, func(at int) (err error) {
		n, err = unix.Readlinkat(at, name, b)
		return err
	})
	return string(b[:max(n, 0)]), err
}

// Attr returns an extended attribute of d itself; ok is false if it has none of that
// name.
func (d *Dir) Attr(attr string) (value string, ok bool, err error) { return AttrOf(d.f, attr) }

// AttrOf returns an extended attribute of an open file, at most 255 bytes of it.
func AttrOf(f *os.File, attr string) (value string, ok bool, err error) {
	b := make([]byte, 255)
	var n int
	err = control(f, func(fd int) (err error) {
		n, err = unix.Fgetxattr(fd, attr, b)
		return err
	})
	switch {
	case err == nil:
		return string(b[:n]), true, nil
	case errors.Is(err, unix.ERANGE):
		return string(b), true, nil
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return "", false, nil
	}
	return "", false, fmt.Errorf("reading attribute %s: %w", attr, err)
}

// Mkdir makes the directory name with exactly the permissions perm.
func (d *Dir) Mkdir(name string, perm uint32) error {
	if err := d.in("mkdir", name, func(at int) error { return unix.Mkdirat(at, name, 0o700) }); err != nil {
		return err
	}
	return d.Chmod(name, perm)
}

// Symlink makes the symbolic link name, at which nothing may be.
func (d *Dir) Symlink(target, name string) error {
	return d.in("symlink", name, func(at int) error { return unix.Symlinkat(target, at, name) })
}

// Rename gives entry from the name to, in place of what is there.
func (d *Dir) Rename(from, to string) error { return d.rename(from, to, 0) }

// RenameNew is [Dir.Rename] where nothing may be at to: else the error is fs.ErrExist.
func (d *Dir) RenameNew(from, to string) error { return d.rename(from, to, unix.RENAME_NOREPLACE) }

// Exchange gives two entries the names of each other, at once. Not every file system
// can: then the error is EINVAL.
func (d *Dir) Exchange(one, other string) error { return d.rename(one, other, unix.RENAME_EXCHANGE) }

func (d *Dir) rename(from, to string, flags uint) error {
	if err := single(from); err != nil {
		return err
	}
	return d.in("rename", to, func(at int) error { return unix.Renameat2(at, from, at, to, flags) })
}

// Remove removes the entry name, which is no directory.
func (d *Dir) Remove(name string) error {
	return d.in("remove", name, func(at int) error { return unix.Unlinkat(at, name, 0) })
}

// RemoveDir removes the empty directory name.
func (d *Dir) RemoveDir(name string) error {
	return d.in("rmdir", name, func(at int) error { return unix.Unlinkat(at, name, unix.AT_REMOVEDIR) })
}

// Chmod sets the permissions of the file or directory name.
func (d *Dir) Chmod(name string, perm uint32) error {
	return d.in("chmod", name, func(at int) error {
		fd, err := open2(at, name, unix.O_PATH, beneath)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if k := infoOf(&st).Kind; k != File && k != Directory {
			return ErrKind
		}
		// fchmod(2) takes no O_PATH descriptor; its link in /proc is the way to it.
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), perm&0o7777)
	})
}

// ChmodSelf sets the permissions of d.
func (d *Dir) ChmodSelf(perm uint32) error {
	return control(d.f, func(fd int) error { return unix.Fchmod(fd, perm&0o7777) })
}

// Chown gives the entry name to another owner; a link itself, not what it leads to.
func (d *Dir) Chown(name string, uid, gid int) error {
	return d.in("chown", name, func(at int) error { return unix.Fchownat(at, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
}

// Touch sets when the content of name was modified.
func (d *Dir) Touch(name string, modified time.Time) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(modified.UnixNano())}
	return d.in("touch", name, func(at int) error { return unix.UtimesNanoAt(at, name, ts, unix.AT_SYMLINK_NOFOLLOW) })
}

// Sync puts everything of d's file system on disk (syncfs(2)).
func (d *Dir) Sync() error {
	if err := control(d.f, unix.Syncfs); err != nil {
		return fmt.Errorf("putting files on disk: %w", err)
	}
	return nil
}

// Clone makes the empty file to share all data of from (FICLONE, ioctl_ficlonerange(2);
// btrfs, xfs, bcachefs and others, both files on one of them). ok is false where that
// is not to be had, and then to is still empty.
func Clone(to, from *os.File) (ok bool, err error) {
	err = control(to, func(dst int) error {
		return control(from, func(src int) error { return unix.IoctlFileClone(dst, src) })
	})
	for _, no := range []error{unix.EOPNOTSUPP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS, unix.EPERM, unix.ETXTBSY, unix.EBADF} {
		if errors.Is(err, no) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("sharing the data of a file: %w", err)
	}
	return true, nil
}

// Copy writes the first size bytes of from to the empty file to. Holes stay holes, so
// that it takes as long as there is data, and as much room. With more than most bytes
// of data the error is [ErrTooMuch], before more than that was written.
func Copy(to, from *os.File, size, most int64) (data int64, err error) {
	for at := int64(0); at < size; {
		start, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return data, fmt.Errorf("finding data: %w", err)
		}
		end, err := from.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return data, fmt.Errorf("finding a hole: %w", err)
		}
		if end = min(end, size); start >= end {
			break
		}
		if end-start > most-data {
			return data, ErrTooMuch
		}
		if _, err = from.Seek(start, io.SeekStart); err == nil {
			_, err = to.Seek(start, io.SeekStart)
		}
		if err == nil {
			_, err = io.CopyN(to, from, end-start)
		}
		if err != nil {
			return data, fmt.Errorf("copying: %w", err)
		}
		data += end - start
		at = end
	}
	return data, to.Truncate(size)
}

// RemoveAll removes name and, if it is a directory, all that is in it, also what its
// owner may not read. Directories within are first moved next to it, so that depth
// costs nothing (T3); if it is interrupted they are left there, with names that begin
// with that of name.
func (d *Dir) RemoveAll(name string) error {
	info, err := d.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Kind != Directory:
		return d.Remove(name)
	}
	waiting, made := []string{name}, 0
	for len(waiting) > 0 {
		last := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if err := d.Chmod(last, 0o700); err != nil {
			return err
		}
		sub, err := d.Open(last)
		if err != nil {
			return err
		}
		moved, err := d.empty(sub, name, &made)
		if err = errors.Join(err, sub.Close()); err == nil {
			err = d.RemoveDir(last)
		}
		if err != nil {
			return err
		}
		waiting = append(waiting, moved...)
	}
	return nil
}

const batch = 1024 // names that are read at once

// empty removes what is in sub, and moves the directories in it to d.
func (d *Dir) empty(sub *Dir, prefix string, made *int) (moved []string, err error) {
	for {
		again, err := sub.Again()
		if err != nil {
			return moved, err
		}
		names, err := again.f.Readdirnames(batch)
		if cerr := again.Close(); len(names) == 0 || cerr != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return moved, errors.Join(err, cerr)
		}
		for _, n := range names {
			info, err := sub.Lstat(n)
			if err != nil {
				return moved, err
			}
			if info.Kind != Directory {
				if err := sub.Remove(n); err != nil {
					return moved, err
				}
				continue
			}
			// Moving a directory changes its "..", which takes the right to write to it.
			if err := sub.Chmod(n, 0o700); err != nil {
				return moved, err
			}
			to, err := d.adopt(sub, n, prefix, made)
			if err != nil {
				return moved, err
			}
			moved = append(moved, to)
		}
	}
}

// adopt moves directory n of sub to d, under a name that nothing has.
func (d *Dir) adopt(sub *Dir, n, prefix string, made *int) (to string, err error) {
	for {
		*made++
		to = prefix + "~" + strconv.Itoa(*made)
		err = d.in("rename", to, func(at int) error {
			return control(sub.f, func(from int) error { return unix.Renameat2(from, n, at, to, unix.RENAME_NOREPLACE) })
		})
		if !errors.Is(err, fs.ErrExist) {
			return to, err
		}
	}
}
