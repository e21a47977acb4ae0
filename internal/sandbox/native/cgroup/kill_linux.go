package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long Kill and Remove try when their context sets no end.
const patience = 10 * time.Second

// Add moves process pid, with all its threads, into the leaf, and sees that it is
// there. What pid started before stays where it is: move it before it starts
// anything. On an error it may be in a part of the leaf; end it.
//
// The kernel stops all forks of the machine for some milliseconds to move somebody
// else's process (cgroup_procs_write_start). A process with one thread joins at once
// when it writes "0" itself: to "tasks" in each of Dirs that has it; in version 2 it
// is born inside by FD.
func (l *Leaf) Add(pid int) error {
	number := strconv.Itoa(pid)
	for _, p := range l.places {
		procs := filepath.Join(p.dir, "cgroup.procs")
		if err := l.sys.write(procs, number); err != nil {
			return fmt.Errorf("moving process %d into control group %s: %w", pid, l.name, err)
		}
		in, err := members(p.dir)
		if err != nil {
			return fmt.Errorf("moving process %d into control group %s: %w", pid, l.name, err)
		}
		if !slices.Contains(in, pid) {
			return fmt.Errorf("moving process %d into control group %s: it is not in %s", pid, l.name, procs)
		}
	}
	return nil
}

// members returns the processes in the group at dir.
func members(dir string) ([]int, error) {
	text, err := readFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for w := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(w)
		if err != nil || pid < 0 {
			return nil, fmt.Errorf("%s: process %q", dir, w)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Empty reports whether no process is in the leaf. What has ended and was not reaped
// does not count, and neither does a directory that somebody removed.
func (l *Leaf) Empty() (bool, error) {
	for _, p := range l.places {
		in, err := members(p.dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil || len(in) > 0 {
			return false, err
		}
	}
	return true, nil
}

// Kill ends every process in the leaf and returns when none is left, or with an error
// when ctx ends, at the latest after ten seconds. Nothing can start in the leaf
// afterwards where the process limit is of version 1.
func (l *Leaf) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.freezing.Lock()
	defer l.freezing.Unlock()
	wait := newPause()
	for {
		empty, err := l.Empty()
		if err == nil && empty {
			return nil
		}
		errs := []error{err}
		if !l.killAtOnce() {
			errs = append(errs, l.killRound())
		}
		if !wait.next(ctx) {
			return fmt.Errorf("ending control group %s: processes are left: %w", l.name, errors.Join(append(errs, ctx.Err())...))
		}
	}
}

// killAtOnce asks version 2 to kill the whole group (Linux 5.14). Only with a single
// place does that hold for all of the leaf: with more, Add could have been half done.
func (l *Leaf) killAtOnce() bool {
	done := false
	for _, p := range l.places {
		if p.version == 2 && l.sys.write(filepath.Join(p.dir, "cgroup.kill"), "1") == nil {
			done = true
		}
	}
	return done && len(l.places) == 1
}

// killRound stops what is in the leaf from starting more, as far as there are means
// to, kills it, and lets it run again so that it dies.
func (l *Leaf) killRound() error {
	var errs []error
	for _, p := range l.places {
		// These fail where the controller is not this one's: each is only a help.
		_ = l.sys.write(filepath.Join(p.dir, "pids.max"), "0")
		_ = l.sys.write(filepath.Join(p.dir, "freezer.state"), "FROZEN")
		_ = l.sys.write(filepath.Join(p.dir, "cgroup.freeze"), "1")
	}
	for _, p := range l.places {
		in, err := members(p.dir)
		errs = append(errs, err)
		for _, pid := range in {
			errs = append(errs, killMember(p.dir, pid))
		}
	}
	for _, p := range l.places {
		_ = l.sys.write(filepath.Join(p.dir, "freezer.state"), "THAWED")
		_ = l.sys.write(filepath.Join(p.dir, "cgroup.freeze"), "0")
	}
	return errors.Join(errs...)
}

// killMember kills pid if it is in the group at dir after we got hold of it: its
// number cannot have passed to a process outside.
func killMember(dir string, pid int) error {
	if pid == 0 {
		return fmt.Errorf("%s: a process that is not to be seen from here", dir)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	in, err := members(dir)
	if err != nil || !slices.Contains(in, pid) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// Remove removes the leaf. Processes that are just dying hold it up for a while: it
// tries until ctx ends, at the latest for ten seconds. Removing twice is no error.
func (l *Leaf) Remove(ctx context.Context) error {
	if l.dir != nil {
		l.dir.Close()
		l.dir = nil
	}
	return l.remove(ctx, func(place) bool { return true })
}

// RemoveOld is Remove for the directories of version 1: those that are left can still hold
// a process that was born in the leaf.
func (l *Leaf) RemoveOld(ctx context.Context) error {
	return l.remove(ctx, func(p place) bool { return p.version == 1 })
}

// remove removes the last of the places, as long as they are such.
func (l *Leaf) remove(ctx context.Context, such func(place) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for len(l.places) > 0 {
		p := l.places[len(l.places)-1]
		if !such(p) {
			break
		}
		l.places = l.places[:len(l.places)-1]
		if err := l.removeDir(ctx, p.dir); err != nil {
			errs = append(errs, fmt.Errorf("removing control group: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (l *Leaf) removeDir(ctx context.Context, dir string) error {
	wait := newPause()
	for {
		err := l.sys.rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINTR) || !wait.next(ctx) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
}

// A pause is waited in between tries, longer each time.
type pause struct{ d time.Duration }

func newPause() *pause { return &pause{d: 200 * time.Microsecond} }

// next waits, and reports whether ctx has not ended.
func (p *pause) next(ctx context.Context) bool {
	t := time.NewTimer(p.d)
	defer t.Stop()
	p.d = min(2*p.d, 20*time.Millisecond)
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A counter is a number in a control file.
type counter struct {
	version   int // of the hierarchies that have the file; 0 for both
	to        *int64
	file, key string // key "" for a file that is one number
	over      int64
}

// Usage reads what the leaf has used so far, and what it was refused.
func (l *Leaf) Usage() Usage {
	u := l.Refusals()
	l.count(
		counter{2, &u.MemoryPeak, "memory.peak", "", 1},
		counter{1, &u.MemoryPeak, "memory.max_usage_in_bytes", "", 1},
		counter{2, &u.CPUMicros, "cpu.stat", "usage_usec", 1},
		counter{1, &u.CPUMicros, "cpuacct.usage", "", 1000},
		counter{2, &u.ThrottledMicros, "cpu.stat", "throttled_usec", 1},
		counter{1, &u.ThrottledMicros, "cpu.stat", "throttled_time", 1000},
	)
	return u
}

// Refusals reads what the leaf was refused so far, and nothing else of Usage.
func (l *Leaf) Refusals() Usage {
	u := Usage{MemoryPeak: -1, OOMKills: -1, PIDsDenied: -1, CPUMicros: -1, ThrottledMicros: -1}
	l.count(
		counter{2, &u.OOMKills, "memory.events", "oom_kill", 1},
		counter{1, &u.OOMKills, "memory.oom_control", "oom_kill", 1},
		counter{0, &u.PIDsDenied, "pids.events", "max", 1},
	)
	return u
}

func (l *Leaf) count(all ...counter) {
	for _, p := range l.places {
		for _, c := range all {
			if c.version != 0 && c.version != p.version {
				continue
			}
			if v, ok := value(filepath.Join(p.dir, c.file), c.key); ok {
				*c.to = v / c.over
			}
		}
	}
}

// value reads the number in a control file, or the one after key at a line's start.
func value(file, key string) (int64, bool) {
	text, err := readFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if key != "" {
			var ok bool
			if line, ok = strings.CutPrefix(line, key+" "); !ok {
				continue
			}
		}
		v, err := strconv.ParseInt(line, 10, 64)
		return v, err == nil
	}
	return 0, false
}
