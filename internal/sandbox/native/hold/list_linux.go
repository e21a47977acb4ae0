package hold

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// Of struct linux_dirent64 (getdents64(2)): where the length of an entry, its type and its
// name are, and where the name may begin to end.
const (
	atLength = 16
	atType   = 18
	atName   = 19
)

// list calls each with the name and the type of every entry of dir, but for "." and "..",
// until there were limit, and returns how many there were. The name counts during the call
// only, and only directories and links are told from the rest. buf is room, 4 KiB at least.
func list(dir string, limit int, buf []byte, each func(name []byte, kind fs.FileMode)) (n int, err error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for n < limit {
		size, err := retry(func() (int, error) { return unix.Getdents(fd, buf) })
		if err != nil || size <= 0 {
			return n, err
		}
		for rest := buf[:size]; len(rest) > atName && n < limit; {
			length := int(binary.NativeEndian.Uint16(rest[atLength:]))
			if length <= atName || length > len(rest) {
				return n, errors.New("the kernel lists what cannot be")
			}
			name, kind := rest[atName:length], rest[atType]
			rest = rest[length:]
			if end := slices.Index(name, 0); end >= 0 {
				name = name[:end]
			}
			if s := string(name); s == "." || s == ".." {
				continue
			}
			n++
			switch kind {
			case unix.DT_DIR:
				each(name, fs.ModeDir)
			case unix.DT_LNK:
				each(name, fs.ModeSymlink)
			case unix.DT_UNKNOWN: // this file system does not say
				mode, err := kindAt(join(dir, string(name)))
				if err == nil {
					each(name, mode)
				}
			default:
				each(name, 0)
			}
		}
	}
	return n, nil
}

// kindAt returns the type bits of what is at p, as [os.Lstat] does.
func kindAt(p string) (fs.FileMode, error) {
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Lstat(p, &st) }); err != nil {
		return 0, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0, nil
	case unix.S_IFDIR:
		return fs.ModeDir, nil
	case unix.S_IFLNK:
		return fs.ModeSymlink, nil
	default:
		return fs.ModeIrregular, nil
	}
}

func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR { //nolint:errorlint // as the call returns it
			return n, err
		}
	}
}
