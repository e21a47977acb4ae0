// Package readback states facts about a running process and the namespaces it is
// in, as the kernel tells them under /proc.
//
// It judges nothing: which facts make a box is for the caller. It sees no Landlock
// domain, because the kernel shows none, and no rule of a seccomp filter. Facts are
// what was true while they were read: a process that can still change itself can
// have changed since.
//
// Invariants:
//
//	R1  All facts of one Read are of one process, whatever becomes of its number.
//	    A process that is gone, or a zombie, is [ErrGone].
//	R2  A file that does not read exactly as the kernel writes it is an error.
//	R3  What could not be read is in Facts.Hidden, and never looks like a fact that
//	    confines: no namespace differs, no mount is read-only.
package readback

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// ErrGone is wrapped by errors about a process that has ended, or that /proc does not
// show to us at all (hidepid).
var ErrGone = errors.New("the process has ended")

// The modes of seccomp, as Facts.Seccomp.
const (
	SeccompOff    = 0
	SeccompStrict = 1
	SeccompFilter = 2
)

// Facts are what the kernel says about a process.
type Facts struct {
	PID     int
	Name    string // of the program, at most 15 bytes, as the kernel escapes it
	State   byte   // 'R', 'S', …
	Threads int

	Seccomp        int // SeccompOff, SeccompStrict or SeccompFilter
	SeccompFilters int // -1 where the kernel does not count (before Linux 5.9)
	NoNewPrivs     bool
	Caps           Capabilities
	UID, GID       [4]uint32 // real, effective, saved, file system; as seen from here
	Groups         []uint32
	NSpid          []int // the number of the process here, and in each namespace within
	CoreDumping    bool
	Dumpable       Tri

	Namespaces map[string]uint64 // "user", "mnt", "pid", …: the inode
	Limits     map[string]Limit  // "Max cpu time", …, as in /proc/<pid>/limits
	Cgroups    []Cgroup
	Mounts     []Mount // as the process sees them from its root
	Root, Cwd  string  // as seen from here

	// Hidden says why a part could not be read: "namespaces", "limits", "cgroups",
	// "mounts", "root", "cwd". Its facts are then empty.
	Hidden map[string]error
}

// A Tri is yes, no, or not known.
type Tri uint8

// The zero Tri is Unknown.
const (
	Unknown Tri = iota
	No
	Yes
)

// Capabilities are the sets of capabilities(7), bit n for capability n.
type Capabilities struct {
	Inheritable, Permitted, Effective, Bounding, Ambient uint64
}

// None reports whether all sets are empty.
func (c Capabilities) None() bool { return c == Capabilities{} }

// Unlimited is the bound of a resource without one.
const Unlimited = ^uint64(0)

// A Limit is what one resource is bounded by, in Unit ("seconds", "bytes",
// "processes", "files", "locks", "signals", "us", or "" for a plain number).
type Limit struct {
	Soft, Hard uint64
	Unit       string
}

// A Cgroup is the place of a process in one hierarchy.
type Cgroup struct {
	Hierarchy   int      // 0 is version 2
	Controllers []string // empty for version 2
	Path        string   // seen from our cgroup namespace
}

// A Mount is one line of /proc/<pid>/mountinfo, proc_pid_mountinfo(5).
type Mount struct {
	ID, Parent int
	Device     string   // "major:minor"
	Root       string   // what of the file system is mounted
	Point      string   // where, from the root of the process
	Options    []string // of this mount
	Optional   []string // "shared:1", "master:2", …
	Type       string
	Source     string
	Super      []string // options of the file system
}

// ReadOnly reports whether nothing can be written through m.
func (m Mount) ReadOnly() bool {
	return slices.Contains(m.Options, "ro") || slices.Contains(m.Super, "ro")
}

// Has reports whether m was mounted with option: "nosuid", "nodev", "noexec".
func (m Mount) Has(option string) bool { return slices.Contains(m.Options, option) }

// Propagates reports whether mounts under m come from or go to elsewhere.
func (m Mount) Propagates() bool {
	return slices.ContainsFunc(m.Optional, func(o string) bool {
		return strings.HasPrefix(o, "shared:") || strings.HasPrefix(o, "master:")
	})
}

// MountOf returns the mount that the absolute, clean path is on for the process,
// symbolic links aside. It is false when no mount of the process's root is known.
func (f Facts) MountOf(path string) (Mount, bool) {
	ids := map[int]bool{}
	for _, m := range f.Mounts {
		ids[m.ID] = true
	}
	var at Mount
	found := false
	for _, m := range f.Mounts {
		if m.Point == "/" && (!ids[m.Parent] || m.Parent == m.ID) {
			at, found = m, true
		}
	}
	// Walked as the kernel does: of the mounts on this one, the first that the path
	// crosses. What a later mount covers is not reached. Each step goes to a mount
	// not seen before, so it ends.
	for delete(ids, at.ID); found; delete(ids, at.ID) {
		next := -1
		for i, m := range f.Mounts {
			if m.Parent == at.ID && ids[m.ID] && beneath(path, m.Point) && beneath(m.Point, at.Point) &&
				(next < 0 || len(m.Point) < len(f.Mounts[next].Point)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		at = f.Mounts[next]
	}
	return at, found
}

func beneath(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// Against returns the names of the namespaces in which the process of f is not the
// one of ours, sorted. A namespace that either lacks is not among them.
func (f Facts) Against(ours Facts) []string {
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(f.Namespaces)) {
		if inode, ok := ours.Namespaces[name]; ok && inode != f.Namespaces[name] {
			differ = append(differ, name)
		}
	}
	return differ
}
