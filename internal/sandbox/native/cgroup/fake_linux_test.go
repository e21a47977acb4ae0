package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// A tree is a fake of the kernel's file systems of groups, in a directory.
type tree struct {
	top               string
	v1                map[string]string // mount point below top to controllers
	locked, delegated map[string]bool
	none              map[string]bool
	fails             map[string]error
	reads             map[string]string
	sys               system
	limits            Limits
	want              []string

	op, failAt int // the failAt-th operation fails, if not 0
}

var errInjected = errors.New("injected")

func (f *tree) count() error {
	f.op++
	if f.op == f.failAt {
		return errInjected
	}
	return nil
}

func (f *tree) mkdir(dir string) error {
	if err := f.count(); err != nil {
		return err
	}
	if f.locked[filepath.Dir(dir)] {
		return &os.PathError{Op: "mkdir", Path: dir, Err: unix.EACCES}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	files := []string{"cgroup.procs"}
	for point, controllers := range f.v1 {
		if strings.HasPrefix(dir, filepath.Join(f.top, point)+"/") {
			for c := range strings.SplitSeq(controllers, ",") {
				for _, s := range (Limits{Memory: 1, Processes: 1, CPUs: 1}).settings(1, c) {
					files = append(files, s.file)
				}
			}
		}
	}
	on, err := readFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"))
	if err == nil {
		files = append(files, "cgroup.kill")
		for c := range strings.FieldsSeq(on) {
			for _, s := range (Limits{Memory: 1, Processes: 1, CPUs: 1}).settings(2, c) {
				files = append(files, s.file)
			}
		}
	}
	for _, name := range files {
		if !f.none[name] {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *tree) write(file, value string) error {
	if err := f.count(); err != nil {
		return err
	}
	old, err := readFile(file)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(file)
	if name == "cgroup.subtree_control" {
		procs, _ := readFile(filepath.Join(dir, "cgroup.procs"))
		if f.locked[filepath.Clean(dir)] {
			return &os.PathError{Op: "write", Path: file, Err: unix.EACCES}
		}
		if procs != "" && filepath.Clean(dir) != filepath.Join(f.top, "cg") {
			return &os.PathError{Op: "write", Path: file, Err: unix.EBUSY}
		}
		value = strings.TrimSpace(old + " " + strings.TrimPrefix(value, "+"))
	} else if err := f.fails[name]; err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	if v, ok := f.reads[name]; ok {
		value = v
	}
	return os.WriteFile(file, []byte(value+"\n"), 0o600)
}

// build makes the tree that the lines of a case describe.
func build(t interface {
	Helper()
	Fatal(...any)
}, top string, lines []string,
) *tree {
	t.Helper()
	f := &tree{
		top: top, v1: map[string]string{}, locked: map[string]bool{}, delegated: map[string]bool{},
		none: map[string]bool{}, fails: map[string]error{}, reads: map[string]string{},
	}
	f.sys = system{
		swaps: true, mkdir: f.mkdir, write: f.write, rmdir: os.RemoveAll,
		writable:  func(file string) bool { return !f.locked[filepath.Dir(file)] },
		delegated: func(dir string) bool { return f.delegated[dir] },
	}
	for _, line := range lines {
		w := strings.Fields(line)
		var err error
		switch w[0] {
		case "mount":
			err = f.mount(w[1], w[2:])
		case "self":
			f.sys.self += w[1] + "\n"
		case "dir":
			err = f.dir(filepath.Join(top, w[1]), w[2:])
		case "fail":
			f.fails[w[1]] = map[string]error{"EINVAL": unix.EINVAL}[w[2]]
		case "reads":
			f.reads[w[1]] = w[2]
		case "none":
			f.none[w[1]] = true
		case "noswap":
			f.sys.swaps = false
		case "limits":
			err = f.limit(w[1:])
		case "=>":
			f.want = append(f.want, strings.TrimPrefix(line, "=> "))
		default:
			err = fmt.Errorf("no line %q", line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *tree) mount(what string, w []string) error {
	root, option := "/", "rw"
	if len(w) > 1 {
		root = w[1]
	}
	if len(w) > 2 {
		option = w[2]
	}
	kind, super := "cgroup2", "rw"
	if what != "v2" {
		kind, super = "cgroup", "rw,"+what
		f.v1[w[0]] = what
	}
	f.sys.mountinfo += fmt.Sprintf("30 20 0:26 %s %s %s,nosuid shared:9 - %s %s %s\n", root, filepath.Join(f.top, w[0]), option, kind, kind, super)
	return os.MkdirAll(filepath.Join(f.top, w[0]), 0o700)
}

func (f *tree) dir(dir string, w []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, kv := range w {
		k, v, _ := strings.Cut(kv, "=")
		file, ok := map[string]string{"have": "cgroup.controllers", "on": "cgroup.subtree_control", "procs": "cgroup.procs"}[k]
		switch {
		case k == "locked":
			f.locked[dir] = true
			continue
		case k == "delegated":
			f.delegated[dir] = true
			continue
		case !ok:
			file = k
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(v, ",", " ")+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (f *tree) limit(w []string) (err error) {
	for _, kv := range w {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "memory":
			f.limits.Memory, err = strconv.ParseInt(v, 10, 64)
		case "pids":
			f.limits.Processes, err = strconv.ParseInt(v, 10, 64)
		case "cpus":
			f.limits.CPUs, err = strconv.ParseFloat(v, 64)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readLayouts(t *testing.T) (names []string, layouts map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/layouts.txt")
	if err != nil {
		t.Fatal(err)
	}
	layouts = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "== "); ok {
			names = append(names, name)
		} else if line != "" && line[0] != '#' {
			layouts[names[len(names)-1]] = append(layouts[names[len(names)-1]], line)
		}
	}
	return names, layouts
}

func TestLayouts(t *testing.T) {
	names, layouts := readLayouts(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f := build(t, t.TempDir(), layouts[name])
			l, err := f.sys.make(t.Context(), "x", f.limits)
			var dirs, missing []string
			for _, want := range f.want {
				what, rest, _ := strings.Cut(want, " ")
				if what == "error" {
					if err == nil || !strings.Contains(err.Error(), rest) {
						t.Errorf("%v, want %s", err, rest)
					}
					if left := f.leaves(); len(left) > 0 && name != "v2-taken" {
						t.Errorf("left behind: %q", left)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				switch what {
				case "dir":
					dirs = append(dirs, filepath.Join(f.top, rest, "ringfence.x"))
				case "enforced":
					if got := l.Enforced(); !slices.Equal(got, strings.Fields(rest)) {
						t.Errorf("enforced %q, want %s", got, rest)
					}
				case "missing":
					what, words, _ := strings.Cut(rest, " ")
					missing = append(missing, what)
					if got := strings.ReplaceAll(l.Missing()[what], f.top, ""); !strings.Contains(got, words) {
						t.Errorf("missing %s: %q, want %s", what, got, words)
					}
				case "on":
					dir, list, _ := strings.Cut(rest, " ")
					if got, _ := readFile(filepath.Join(f.top, dir, "cgroup.subtree_control")); got != strings.ReplaceAll(list, ",", " ") {
						t.Errorf("%s hands on %q, want %s", dir, got, list)
					}
				}
			}
			if !slices.Equal(l.Dirs(), dirs) {
				t.Errorf("made in %q, want %q", l.Dirs(), dirs)
			}
			if len(l.Missing()) != len(missing) {
				t.Errorf("missing %v, want %q", l.Missing(), missing)
			}
			if (l.FD() >= 0) != (len(l.places) > 0 && l.places[0].version == 2) {
				t.Errorf("descriptor %d", l.FD())
			}
			if err := l.Remove(t.Context()); err != nil || len(f.leaves()) > 0 {
				t.Errorf("removing: %v, %q", err, f.leaves())
			}
		})
	}
}

// leaves returns what is left of ours in the tree.
func (f *tree) leaves() []string {
	var left []string
	_ = filepath.WalkDir(f.top, func(name string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), Prefix) {
			left = append(left, name)
		}
		return nil
	})
	return left
}

// G1 and G3, whatever step goes wrong: an error leaves nothing behind; a leaf
// accounts for all that was asked for, and what it says it enforces is in the files.
func TestFaults(t *testing.T) {
	names, layouts := readLayouts(t)
	top := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		name := rapid.SampledFrom(names).Draw(r, "layout")
		f := build(r, filepath.Join(top, strconv.Itoa(n)), layouts[name])
		f.failAt = rapid.IntRange(0, 12).Draw(r, "fails")
		if f.reads["pids.max"] != "" || name == "v2-taken" {
			return
		}
		l, err := f.sys.make(t.Context(), "x", f.limits)
		if err != nil {
			if left := f.leaves(); len(left) > 0 {
				r.Fatalf("%s: %v, and left %q", name, err, left)
			}
			return
		}
		for _, c := range f.limits.wanted() {
			_, lacks := l.Missing()[c]
			if lacks == slices.Contains(l.Enforced(), c) {
				r.Fatalf("%s: %s is missing: %v, enforced: %q", name, c, l.Missing(), l.Enforced())
			}
		}
		for _, what := range l.Enforced() {
			if !f.holds(l, what) {
				r.Fatalf("%s: %s is not in the files", name, what)
			}
		}
		if err := l.Remove(t.Context()); err != nil {
			r.Fatal(err)
		}
	})
}

// holds reports whether the files of l say that what is limited as asked.
func (f *tree) holds(l *Leaf, what string) bool {
	for _, p := range l.places {
		for _, c := range f.limits.wanted() {
			for _, s := range f.limits.settings(p.version, c) {
				if back, err := readFile(filepath.Join(p.dir, s.file)); s.what == what && err == nil && back == s.value {
					return true
				}
			}
		}
	}
	return false
}
