package cgroup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NewName returns a name for a leaf that nothing else has: it says which process made
// it, so that [OwnerDead] can tell later. Its parts, joined by dashes, are the boot
// of the machine, the namespace of process numbers, the number, the start time in
// clock ticks since boot, and a random word.
func NewName() (string, error) {
	boot, namespace, err := here()
	if err != nil {
		return "", fmt.Errorf("naming a control group: %w", err)
	}
	start, ok := startTime(os.Getpid())
	if !ok {
		return "", errors.New("naming a control group: /proc does not tell when we started")
	}
	return fmt.Sprintf("%s-%d-%d-%d-%s", boot, namespace, os.Getpid(), start, strings.ToLower(rand.Text()[:12])), nil
}

// OwnerDead reports whether the process that made name with [NewName] has ended. It
// is false for other names and for owners among process numbers that are not ours to
// see.
func OwnerDead(name string) bool {
	words := strings.Split(name, "-")
	if len(words) != 5 {
		return false
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(words[i+1], 10, 63); err != nil {
			return false
		}
	}
	boot, namespace, err := here()
	switch {
	case err != nil || len(words[0]) != len(boot):
		return false
	case words[0] != boot:
		return true
	case n[0] != namespace:
		return false
	}
	start, ok := startTime(int(n[1]))
	return !ok || start != n[2]
}

// here returns the first half of the boot's identity and the inode of the namespace
// that our process numbers are of.
func here() (boot string, namespace uint64, err error) {
	id, err := readFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0, err
	}
	id = strings.ReplaceAll(id, "-", "")
	if len(id) != 32 {
		return "", 0, fmt.Errorf("boot id %q", id)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return "", 0, err
	}
	return id[:16], st.Ino, nil
}

// startTime reads the start of a process that has not ended, proc_pid_stat(5).
func startTime(pid int) (uint64, bool) {
	text, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in brackets, can hold anything; the fields after it cannot.
	words := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(words) < 20 || words[0] == "Z" || words[0] == "X" {
		return 0, false
	}
	v, err := strconv.ParseUint(words[19], 10, 64)
	return v, err == nil
}

// Sweep ends and removes the leaves whose owners isDead says have ended, such as
// [OwnerDead], wherever Make would have put them for us. It returns the names of
// those that are gone now.
func Sweep(ctx context.Context, isDead func(name string) bool) ([]string, error) {
	s, err := machine()
	if err != nil {
		return nil, err
	}
	return s.sweep(ctx, isDead)
}

func (s system) sweep(ctx context.Context, isDead func(name string) bool) ([]string, error) {
	all, err := hierarchies(s.mountinfo, s.self)
	if err != nil {
		return nil, err
	}
	leaves := map[string]*Leaf{}
	for _, h := range all {
		for i, dir := range h.ancestors() {
			if i > 0 && h.version == 1 {
				break
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // not ours to see, so nothing of ours is there
			}
			for _, e := range entries {
				name, ok := strings.CutPrefix(e.Name(), Prefix)
				if !ok || !e.IsDir() || checkName(name) != nil {
					continue
				}
				if leaves[name] == nil {
					leaves[name] = &Leaf{name: name, sys: s}
				}
				leaves[name].places = append(leaves[name].places, place{version: h.version, dir: filepath.Join(dir, e.Name())})
			}
		}
	}
	var gone []string
	var errs []error
	for name, l := range leaves {
		if !isDead(name) {
			continue
		}
		if err := errors.Join(l.Kill(ctx), l.Remove(ctx)); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, name)
	}
	slices.Sort(gone)
	return gone, errors.Join(errs...)
}
