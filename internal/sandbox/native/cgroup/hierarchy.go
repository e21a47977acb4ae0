package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"ringfence/internal/sys/mounts"
)

// A hierarchy is a mounted tree of groups and where we are in it.
type hierarchy struct {
	version     int
	controllers []string // version 1 only: those bound to it
	point       string   // where it is mounted
	own         string   // directory of our own group, "" if the mount does not show it
	readOnly    bool
}

// hierarchies finds the trees of groups from /proc/self/mountinfo and
// /proc/self/cgroup. Hierarchies without controllers that are not version 2
// ("name=systemd") are left out. Of several mounts of one tree the first that shows
// our group and can be written to counts.
func hierarchies(mountinfo, own string) ([]hierarchy, error) {
	paths, err := ownPaths(own)
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for line := range strings.Lines(mountinfo) {
		h, root, ok := parseMount(line)
		if !ok {
			continue
		}
		key := strings.Join(h.controllers, ",")
		at, member := paths[key]
		if !member {
			continue
		}
		h.own = locate(h.point, root, at)
		i := slices.IndexFunc(all, func(o hierarchy) bool {
			return o.version == h.version && slices.Equal(o.controllers, h.controllers)
		})
		switch {
		case i < 0:
			all = append(all, h)
		case all[i].own == "" || all[i].readOnly:
			if h.own != "" {
				all[i] = h
			}
		}
	}
	return all, nil
}

// ownPaths reads /proc/self/cgroup: our path by the sorted list of controllers, ""
// for version 2.
func ownPaths(text string) (map[string]string, error) {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.SplitN(line, ":", 3)
		if len(words) != 3 || !strings.HasPrefix(words[2], "/") {
			return nil, fmt.Errorf("cgroup: line %q of /proc/self/cgroup", line)
		}
		if strings.HasPrefix(words[1], "name=") {
			continue
		}
		var names []string
		if words[1] != "" {
			names = strings.Split(words[1], ",")
		}
		slices.Sort(names)
		paths[strings.Join(names, ",")] = words[2]
	}
	return paths, nil
}

// known are the controllers of version 1 that may stand among the options of a mount
// (kernel/cgroup/cgroup-v1.c prints them beside other options).
var known = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "dmem", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio", "perf_event", "pids", "rdma"}

// parseMount reads a line of mountinfo, proc_pid_mountinfo(5); ok is false when it is
// not of a hierarchy with controllers.
func parseMount(line string) (h hierarchy, root string, ok bool) {
	before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	left, right := strings.Split(before, " "), strings.Split(after, " ")
	if !found || len(left) < 6 || len(right) < 3 {
		return hierarchy{}, "", false
	}
	options := strings.Split(right[2], ",")
	switch right[0] {
	case "cgroup2":
		h.version = 2
	case "cgroup":
		h.version = 1
		for _, o := range options {
			if slices.Contains(known, o) {
				h.controllers = append(h.controllers, o)
			}
		}
		slices.Sort(h.controllers)
		if len(h.controllers) == 0 {
			return hierarchy{}, "", false
		}
	default:
		return hierarchy{}, "", false
	}
	h.point, root = path.Clean(mounts.Unescape(left[4])), mounts.Unescape(left[3])
	if !path.IsAbs(h.point) {
		return hierarchy{}, "", false
	}
	h.readOnly = slices.Contains(strings.Split(left[5], ","), "ro") || slices.Contains(options, "ro")
	return h, root, true
}

// locate returns the directory of group at in a mount of the subtree root at point,
// or "" if that subtree does not hold it.
func locate(point, root, at string) string {
	rest, ok := strings.CutPrefix(at, strings.TrimSuffix(root, "/"))
	if !ok || rest != "" && rest[0] != '/' || strings.HasPrefix(path.Clean(root), "/..") || slices.Contains(strings.Split(rest, "/"), "..") {
		return ""
	}
	return path.Join(point, rest)
}

// ancestors returns own and the directories above it up to point, nearest first.
func (h hierarchy) ancestors() []string {
	if h.own == "" {
		return nil
	}
	dirs := []string{h.own}
	for d := h.own; d != h.point && d != "/"; {
		d = path.Dir(d)
		dirs = append(dirs, d)
	}
	return dirs
}

// holder returns the version 1 hierarchy of controller.
func holder(all []hierarchy, controller string) (hierarchy, bool) {
	for _, h := range all {
		if slices.Contains(h.controllers, controller) {
			return h, true
		}
	}
	return hierarchy{}, false
}

func unified(all []hierarchy) (hierarchy, bool) {
	for _, h := range all {
		if h.version == 2 {
			return h, true
		}
	}
	return hierarchy{}, false
}
