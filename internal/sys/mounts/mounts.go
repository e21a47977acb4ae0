// Package mounts says under which other names a file can be reached, because what it is
// in is mounted more than once.
//
// It mounts nothing, and it knows the mounts of this process only, at the moment it is
// asked.
//
// Invariants:
//
//	M1  Every name that it returns leads to the file, or into the directory, that was
//	    asked about, unless something else is mounted over it.
package mounts

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Elsewhere returns the names by which name, an absolute path without links, or a part of
// what is in it, can be reached through other mounts: those of name itself, and the
// points where something beneath it is mounted. On systems without /proc there are none.
func Elsewhere(name string) ([]string, error) {
	text, err := table()
	if err != nil || text == "" {
		return nil, err
	}
	return elsewhere(text, name), nil
}

// A mount is a line of mountinfo, proc_pid_mountinfo(5).
type mount struct{ device, root, point string }

// elsewhere is Elsewhere on a text of mountinfo.
func elsewhere(text, name string) (names []string) {
	var all []mount
	at := -1 // the mount that name is in: the last of those nearest above it
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		m := mount{f[2], Unescape(f[3]), Unescape(f[4])}
		all = append(all, m)
		if _, ok := rest(name, m.point); ok && (at < 0 || len(m.point) >= len(all[at].point)) {
			at = len(all) - 1
		}
	}
	if at < 0 {
		return nil
	}
	in := all[at]
	under, _ := rest(name, in.point)
	file := path.Join(in.root, under) // its path within its file system
	for i, m := range all {
		if i == at || m.device != in.device {
			continue
		}
		other := ""
		if r, ok := rest(file, m.root); ok {
			other = path.Join(m.point, r)
		} else if _, ok := rest(m.root, file); ok {
			other = m.point
		}
		if other != "" && other != name && !slices.Contains(names, other) {
			names = append(names, other)
		}
	}
	return names
}

// rest returns what of p is beneath dir, and whether p is dir or beneath it.
func rest(p, dir string) (string, bool) {
	if dir == "/" {
		return p, true
	}
	r, ok := strings.CutPrefix(p, dir)
	return r, ok && (r == "" || r[0] == '/')
}

// Unescape undoes the octal escapes of a field of mountinfo; what is none stays as it is.
func Unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
