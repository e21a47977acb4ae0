package container

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A mountPoint is one line of /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).
type mountPoint struct {
	target  string
	options []string // of the mount and of the file system: "ro", "nosuid", …
	fstype  string
}

func (m mountPoint) has(option string) bool { return slices.Contains(m.options, option) }

const (
	maxMounts    = 4096
	maxMountLine = 64 << 10
)

var errMountinfo = errors.New("malformed mountinfo")

// parseMountinfo reads the text of /proc/<pid>/mountinfo. Of several mounts at one
// place the last is on top.
func parseMountinfo(r io.Reader) ([]mountPoint, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxMountLine)
	var list []mountPoint
	for sc.Scan() {
		// 36 35 98:0 /root /target options optional-fields… - type source super-options
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(f) < 6 || len(g) < 3 || len(list) == maxMounts {
			return nil, errMountinfo
		}
		target, err := unescapeMount(f[4])
		if err != nil {
			return nil, err
		}
		options := strings.Split(f[5], ",")
		// A file system that is read-only is so at every mount.
		if slices.Contains(strings.Split(g[2], ","), "ro") {
			options = append(options, "ro")
		}
		list = append(list, mountPoint{target: target, options: options, fstype: g[0]})
	}
	if err := sc.Err(); err != nil {
		return nil, errMountinfo
	}
	return list, nil
}

// unescapeMount undoes the octal escapes of space, tab, newline and backslash.
func unescapeMount(s string) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, `\`)
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		if len(after) < 3 {
			return "", errMountinfo
		}
		c, err := strconv.ParseUint(after[:3], 8, 8)
		if err != nil {
			return "", errMountinfo
		}
		b.WriteByte(byte(c))
		s = after[3:]
	}
}

// isBeneath reports whether path is strictly beneath dir; both are clean.
func isBeneath(path, dir string) bool {
	if dir == "/" {
		return path != "/"
	}
	return strings.HasPrefix(path, dir+"/")
}
