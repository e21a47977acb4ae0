//go:build unix

package look

import (
	"os"
	"syscall"
)

func lstat(path string) (Info, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	info := Info{Mode: fi.Mode(), Links: 1}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.Links = uint64(st.Nlink) //nolint:unconvert // has 16 or 32 bits on other systems
	}
	return info, nil
}

func settled(path string) bool {
	const others = 0o022 // may be written by the group, or by everybody
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() || fi.Mode().Perm()&others != 0 {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
