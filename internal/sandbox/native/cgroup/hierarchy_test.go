package cgroup

import (
	"path"
	"strings"
	"testing"
)

// Whatever the files hold, no directory is found outside the mounts, and nothing
// panics.
func FuzzHierarchies(f *testing.F) {
	f.Add("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n", "4:memory:/a/b\n0::/\n")
	f.Add("41 31 0:38 /x\\040y /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/x y/z\n")
	f.Add("41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../../etc\n")
	f.Fuzz(func(t *testing.T, mountinfo, self string) {
		all, err := hierarchies(mountinfo, self)
		if err != nil {
			return
		}
		for _, h := range all {
			for _, dir := range h.ancestors() {
				if dir != h.point && !strings.HasPrefix(dir, strings.TrimSuffix(h.point, "/")+"/") || !path.IsAbs(dir) {
					t.Fatalf("%q is not below %q", dir, h.point)
				}
			}
		}
	})
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A-1_b.c": true, "": false, "a/b": false, "a b": false, "ä": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "a\n": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
