// Package mounts says under which other names a file can be reached, because what it is
// in is mounted more than once, or is a layer of an overlay.
//
// It mounts nothing, and knows mounts as they are at the moment it is asked.
//
// Invariants:
//
//	M1  Every name that it returns leads to the file, or into the directory, that was
//	    asked about, unless something else is mounted over it.
//	M2  A mount that shows the file and that mountinfo tells of is found, but for a layer
//	    of an overlay that was not named by an absolute path when it was mounted, and
//	    file systems that show another one by themselves (FUSE, NFS): see [Table.Alike].
package mounts

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Mount is a line of mountinfo, proc_pid_mountinfo(5).
type Mount struct {
	ID, Parent int
	Device     string // "major:minor"
	Root       string // what of the file system is mounted
	Point      string // where
	Type       string
	Super      string // options of the file system, as they stand there
}

// A Table is all that is mounted in one name space, in the order of mountinfo.
type Table []Mount

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

// Here returns the mounts of this process. On systems without /proc there are none.
func Here() (Table, error) {
	text, err := table()
	return Parse(text), err
}

// elsewhere is Elsewhere on a text of mountinfo.
func elsewhere(text, name string) []string { return Parse(text).Elsewhere(name) }

// Elsewhere is [Elsewhere] where t is all that is mounted.
func (t Table) Elsewhere(name string) []string {
	return slices.DeleteFunc(t.names(t, name, false), func(n string) bool { return n == name })
}

// Parse reads a text of mountinfo. What is no line of it is left out.
func Parse(text string) (all Table) {
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 {
			continue
		}
		m := Mount{Device: f[2], Root: Unescape(f[3]), Point: Unescape(f[4])}
		m.ID, _ = strconv.Atoi(f[0]) // no number, no mount: 0 is none
		m.Parent, _ = strconv.Atoi(f[1])
		if len(g) > 0 {
			m.Type = g[0]
		}
		if len(g) > 2 {
			m.Super = g[2]
		}
		all = append(all, m)
	}
	return all
}

// Names returns the names in t by which name of ours, an absolute path without links, or
// a part of what is in it, can be reached. What another mount of t covers is none.
func (t Table) Names(ours Table, name string) []string { return t.names(ours, name, true) }

func (t Table) names(ours Table, name string, covers bool) (names []string) {
	var own []place
	if m, ok := ours.Of(name); ok {
		own = ours.placesIn(m, name, nil)
	}
	for _, m := range t {
		if len(own) == 0 {
			break
		}
		for _, shown := range ours.sources(m, m.Root, nil) {
			for _, p := range own {
				n := m.name(shown, p)
				if n != "" && !slices.Contains(names, n) && !(covers && t.covered(m, n)) {
					names = append(names, n)
				}
			}
		}
	}
	return names
}

// A place is where a file is: its path within a file system.
type place struct{ device, file string }

// name returns by which name p, or what of it is shown, can be reached through m, which
// shows what is at shown; "" for none.
func (m Mount) name(shown, p place) string {
	if shown.device != p.device {
		return ""
	}
	if r, ok := rest(p.file, shown.file); ok {
		return path.Join(m.Point, r)
	}
	if _, ok := rest(shown.file, p.file); ok {
		return m.Point
	}
	return ""
}

// placesIn returns where a file lies that is in m: in its file system, and, if that is an
// overlay, in the layers of it, where it may lie in truth.
func (t Table) placesIn(m Mount, name string, seen []string) []place {
	under, _ := rest(name, m.Point)
	return t.sources(m, path.Join(m.Root, under), seen)
}

// Of returns the mount that name is in: the last of those nearest above it.
func (t Table) Of(name string) (of Mount, ok bool) {
	for _, m := range t {
		if _, in := rest(name, m.Point); in && (!ok || len(m.Point) >= len(of.Point)) {
			of, ok = m, true
		}
	}
	return of, ok
}

// sources returns where the file at a path within the file system of m lies. Layers are
// looked up in t, in every mount that they can have been in when m was mounted. The
// kernel stacks overlays two deep.
func (t Table) sources(m Mount, file string, seen []string) []place {
	all := []place{{m.Device, file}}
	seen = append(slices.Clip(seen), m.Device)
	for _, l := range m.layers() {
		name := path.Join(l, file)
		for _, in := range t {
			if _, ok := rest(name, in.Point); ok && !slices.Contains(seen, in.Device) {
				all = append(all, t.placesIn(in, name, seen)...)
			}
		}
	}
	return all
}

// layers are the directories that an overlay is made of, as they were named when it was
// mounted, if that is a name for others too (Documentation/filesystems/overlayfs.rst).
func (m Mount) layers() (dirs []string) {
	if m.Type != "overlay" {
		return nil
	}
	for o := range strings.SplitSeq(m.Super, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir":
		default:
			continue
		}
		value = Unescape(value)
		if key != "lowerdir" {
			value = strings.ReplaceAll(value, ":", `\:`)
		}
		for dir := range splitLayers(value) {
			if path.IsAbs(dir) {
				dirs = append(dirs, path.Clean(dir))
			}
		}
	}
	return dirs
}

// splitLayers yields the parts of a list of directories with colons between, or two of
// them. One with a backslash before it belongs to a name.
func splitLayers(list string) func(func(string) bool) {
	return func(yield func(string) bool) {
		var dir strings.Builder
		for i := 0; i <= len(list); i++ {
			switch {
			case i == len(list) || list[i] == ':':
				if dir.Len() > 0 && !yield(dir.String()) {
					return
				}
				dir.Reset()
			case list[i] == '\\' && i+1 < len(list):
				i++
				dir.WriteByte(list[i])
			default:
				dir.WriteByte(list[i])
			}
		}
	}
}

// covered reports whether another mount, on m, is what is to be seen at name.
func (t Table) covered(m Mount, name string) bool {
	return slices.ContainsFunc(t, func(c Mount) bool {
		_, in := rest(name, c.Point)
		_, on := rest(c.Point, m.Point)
		return c.ID != m.ID && c.Parent == m.ID && in && on
	})
}

// direct are types of file systems that have their files to themselves: on a device, in
// memory, or made up by the kernel.
var direct = []string{
	"autofs", "bcachefs", "binfmt_misc", "bpf", "btrfs", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
	"efivarfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fusectl", "hugetlbfs", "iso9660", "jfs", "mqueue", "msdos",
	"nilfs2", "nsfs", "ntfs", "ntfs3", "proc", "pstore", "ramfs", "reiserfs", "rootfs", "securityfs", "selinuxfs", "squashfs",
	"sysfs", "tmpfs", "tracefs", "udf", "vfat", "xfs", "zfs",
}

// Opaque reports whether m may show files of another file system that mountinfo does not
// tell of: what it shows has to be looked at.
func (m Mount) Opaque() bool { return !slices.Contains(direct, m.Type) }

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
	if !strings.Contains(s, `\`) {
		return s
	}
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
