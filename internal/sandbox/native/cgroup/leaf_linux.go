package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A system is the machine as far as groups go: what it says and what it lets us do.
type system struct {
	mountinfo string // of /proc/self
	self      string // /proc/self/cgroup
	swaps     bool   // the kernel can swap at all

	mkdir     func(dir string) error
	rmdir     func(dir string) error
	write     func(file, value string) error // to a file that is there, in one call
	writable  func(file string) bool
	delegated func(dir string) bool // handed to us by the manager of the machine
}

func machine() (system, error) {
	s := system{
		mkdir:     func(dir string) error { return os.Mkdir(dir, 0o700) },
		rmdir:     unix.Rmdir,
		write:     writeFile,
		writable:  func(file string) bool { return unix.Faccessat(unix.AT_FDCWD, file, unix.W_OK, unix.AT_EACCESS) == nil },
		delegated: delegated,
	}
	for name, to := range map[string]*string{"/proc/self/mountinfo": &s.mountinfo, "/proc/self/cgroup": &s.self} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return system{}, fmt.Errorf("looking for control groups: %w", err)
		}
		*to = string(text) // a kernel without groups has no such file
	}
	_, err := os.Stat("/proc/swaps")
	s.swaps = err == nil
	return s, nil
}

// delegated reads what systemd marks the group of a unit with Delegate=yes with
// (systemd's docs/CGROUP_DELEGATION.md).
func delegated(dir string) bool {
	var v [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, v[:]); err == nil && string(v[:n]) == "1" {
			return true
		}
	}
	return false
}

// A place is a directory of the leaf in one hierarchy.
type place struct {
	version int // 1 or 2
	dir     string
}

// A Leaf is the control group of one box. Its methods may be called concurrently, but
// Remove comes last.
type Leaf struct {
	name     string
	places   []place
	dir      *os.File // the version 2 directory, or nil
	enforced []string
	missing  map[string]string
	sys      system

	freezing sync.Mutex // held while Kill freezes, kills and thaws
}

// Name returns the name that the leaf was made with.
func (l *Leaf) Name() string { return l.name }

// Enforced returns what is limited, as read back: of Memory, Swap, PIDs and CPU, in
// that order.
func (l *Leaf) Enforced() []string { return slices.Clone(l.enforced) }

// Missing returns what was asked for and is not limited, with the reason and what
// would help.
func (l *Leaf) Missing() map[string]string { return maps.Clone(l.missing) }

// Dirs returns the directories of the leaf, one for each hierarchy it is in. With
// none, Add and Kill do nothing.
func (l *Leaf) Dirs() []string {
	var dirs []string
	for _, p := range l.places {
		dirs = append(dirs, p.dir)
	}
	return dirs
}

// FD returns an open directory of version 2 for CLONE_INTO_CGROUP, close-on-exec, or
// -1. On a machine with both versions a process started that way must still be given
// to Add.
func (l *Leaf) FD() int {
	if l.dir == nil {
		return -1
	}
	return int(l.dir.Fd())
}

// Make makes a leaf called name (see [NewName]) with the limits, wherever this
// machine lets us. It is no error that some or all of them cannot be had: see
// [Leaf.Missing]. It is one if a limit reads back as something else, if name is
// taken, or if what was made cannot be removed again.
func Make(ctx context.Context, name string, limits Limits) (*Leaf, error) {
	s, err := machine()
	if err != nil {
		return nil, err
	}
	return s.make(ctx, name, limits)
}

func (s system) make(ctx context.Context, name string, limits Limits) (*Leaf, error) {
	if err := errors.Join(checkName(name), limits.check(), ctx.Err()); err != nil {
		return nil, err
	}
	all, err := hierarchies(s.mountinfo, s.self)
	if err != nil {
		return nil, err
	}
	m := maker{system: s, all: all, limits: limits, leaf: &Leaf{name: name, sys: s, missing: map[string]string{}}}
	if err := m.fill(); err != nil {
		return nil, errors.Join(fmt.Errorf("making control group %s: %w", name, err), m.leaf.Remove(context.WithoutCancel(ctx)))
	}
	return m.leaf, nil
}

// A maker makes one leaf. Its methods return an error only where G1 or G3 is at
// stake; what merely cannot be had is noted as missing.
type maker struct {
	system
	all    []hierarchy
	limits Limits
	leaf   *Leaf
}

func (m maker) fill() error {
	wanted := m.limits.wanted()
	in2 := slices.DeleteFunc(slices.Clone(wanted), func(c string) bool { _, v1 := holder(m.all, c); return v1 })
	if err := m.fill2(in2); err != nil {
		return err
	}
	for _, c := range wanted {
		if h, ok := holder(m.all, c); ok {
			if err := m.fill1(h, c); err != nil {
				return err
			}
		}
	}
	if m.leaf.dir == nil && len(m.leaf.places) > 0 {
		// What version 2 kills in one step must be stopped first here.
		if h, ok := holder(m.all, "freezer"); ok {
			if _, err := m.place(h, h.own); err != nil && !errors.As(err, new(unavailableError)) {
				return err
			}
		}
	}
	order := []string{Memory, Swap, PIDs, CPU}
	slices.SortFunc(m.leaf.enforced, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return nil
}

// unavailableError says why there is no leaf in a directory, and what would help.
type unavailableError string

func (e unavailableError) Error() string { return string(e) }

// place makes the leaf's directory below dir in h, or returns the one made before.
// Of two hierarchies in one directory there is none: a mount has one tree.
func (m maker) place(h hierarchy, below string) (place, error) {
	dir := filepath.Join(below, Prefix+m.leaf.name)
	for _, p := range m.leaf.places {
		if p.dir == dir {
			return p, nil
		}
	}
	switch {
	case below == "":
		return place{}, unavailableError(fmt.Sprintf("our own group is not to be seen under %s; mount it so that it is", h.point))
	case h.readOnly:
		return place{}, unavailableError(h.point + " is mounted read-only; mount it read-write for us")
	}
	switch err := m.mkdir(dir); {
	case errors.Is(err, os.ErrExist):
		return place{}, fmt.Errorf("%s is there already", dir)
	case err != nil:
		return place{}, unavailableError(fmt.Sprintf("%v; %s", err, advice(h.version)))
	}
	m.leaf.places = append(m.leaf.places, place{version: h.version, dir: dir})
	return m.leaf.places[len(m.leaf.places)-1], nil
}

// advice says what helps where we may not make groups.
func advice(version int) string {
	if version == 2 {
		return "start it with systemd-run --user --scope, in a unit with Delegate=yes, or as root"
	}
	return "start it as root, or have the directory made writable for you"
}

// fill1 limits what controller stands for in its own hierarchy of version 1.
func (m maker) fill1(h hierarchy, controller string) error {
	p, err := m.place(h, h.own)
	if no, ok := errors.AsType[unavailableError](err); ok {
		m.lack(controller, string(no))
		return nil
	}
	if err != nil {
		return err
	}
	return m.set(p, controller)
}

// fill2 makes the leaf in the hierarchy of version 2, if there is one, and limits
// there what the controllers stand for. Without any it is still what kills the box
// in one step.
func (m maker) fill2(controllers []string) error {
	h, ok := unified(m.all)
	if !ok {
		for _, c := range controllers {
			m.lack(c, "no control group file system with "+c+" is mounted; mount cgroup2 at /sys/fs/cgroup")
		}
		return nil
	}
	below, served := m.choose(h, controllers)
	p, err := m.place(h, below)
	if no, ok := errors.AsType[unavailableError](err); ok {
		for _, c := range controllers {
			m.lack(c, string(no))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if m.leaf.dir, err = os.Open(p.dir); err != nil {
		return err
	}
	for _, c := range served {
		if err := m.set(p, c); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the directory of version 2 that the leaf is best made in, and those
// of the controllers that it serves: our own group, or the nearest one above that
// serves more. What is not served is noted as missing.
func (m maker) choose(h hierarchy, controllers []string) (dir string, served []string) {
	dir = h.own
	reasons := map[string]string{}
	up := h.ancestors()
	for i, d := range up {
		if len(served) == len(controllers) {
			break
		}
		if i > 0 && !m.writable(filepath.Join(d, "cgroup.procs")) {
			note(reasons, controllers, fmt.Sprintf("%s may not be written to by us; %s", d, advice(2)))
			break
		}
		have := m.enabled(d, controllers, i == 0 || m.delegated(d), reasons)
		if len(have) <= len(served) {
			continue
		}
		if why := m.escapes(up[:i], have); why != "" {
			note(reasons, controllers, why)
			continue
		}
		dir, served = d, have
	}
	for _, c := range controllers {
		if !slices.Contains(served, c) {
			m.lack(c, reasons[c])
		}
	}
	return dir, served
}

// enabled returns which of the controllers the group in dir hands to groups below it,
// after asking for the others if it is ours to ask.
func (m maker) enabled(dir string, controllers []string, ours bool, reasons map[string]string) []string {
	control := filepath.Join(dir, "cgroup.subtree_control")
	available, _ := readFile(filepath.Join(dir, "cgroup.controllers"))
	var have []string
	for _, c := range controllers {
		now, err := readFile(control)
		switch {
		case err != nil:
			note(reasons, []string{c}, err.Error())
			continue
		case slices.Contains(strings.Fields(now), c):
		case !slices.Contains(strings.Fields(available), c):
			note(reasons, []string{c}, fmt.Sprintf("%s has no %s controller; start it with systemd-run --user --scope, and have %s in Delegate= of user@.service", dir, c, c))
			continue
		case !ours:
			note(reasons, []string{c}, fmt.Sprintf("%s does not hand on %s", dir, c))
			continue
		default:
			if err := m.write(control, "+"+c); errors.Is(err, unix.EBUSY) {
				note(reasons, []string{c}, fmt.Sprintf("%s holds processes, so it hands on no %s; %s", dir, c, advice(2)))
				continue
			} else if err != nil {
				note(reasons, []string{c}, fmt.Sprintf("%v; %s", err, advice(2)))
				continue
			}
		}
		have = append(have, c)
	}
	return have
}

// note keeps the first reason for each of the controllers: that of our own group,
// which is the one to mend.
func note(reasons map[string]string, controllers []string, why string) {
	for _, c := range controllers {
		if reasons[c] == "" {
			reasons[c] = why
		}
	}
}

// escapes says which limit of the groups in dirs a leaf outside them would escape if
// the controllers in have bound it, or "": none that it does not have as tight.
func (m maker) escapes(dirs, have []string) string {
	ours := map[string]float64{}
	for _, c := range have {
		switch c {
		case Memory:
			ours["memory.max"], ours["memory.high"] = float64(m.limits.Memory), float64(m.limits.Memory)
			ours["memory.swap.max"] = -1 // no swap at all is as tight as any
		case PIDs:
			ours["pids.max"] = float64(m.limits.Processes)
		case CPU:
			ours["cpu.max"] = m.limits.CPUs
		}
	}
	for _, dir := range dirs {
		for _, file := range []string{"memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "io.max", "cpuset.cpus"} {
			text, err := readFile(filepath.Join(dir, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			theirs, unlimited, ok := bound(file, text)
			if err != nil || !ok {
				return filepath.Join(dir, file) + " cannot be read"
			}
			if l, set := ours[file]; unlimited || set && l <= theirs {
				continue
			}
			return fmt.Sprintf("%s is %s, which a group beside it would escape; set that limit for the box as well", filepath.Join(dir, file), text)
		}
	}
	return ""
}

// bound reads a limit of version 2: "max", a number, or for cpu.max quota and period.
// Those of io.max and cpuset.cpus, which a leaf never has, count as the tightest.
func bound(file, text string) (v float64, unlimited, ok bool) {
	words := strings.Fields(text)
	switch {
	case file == "io.max" || file == "cpuset.cpus":
		return -2, len(words) == 0, true
	case len(words) == 0:
		return 0, false, false
	case words[0] == "max":
		return 0, true, true
	}
	v, err := strconv.ParseFloat(words[0], 64)
	if file == "cpu.max" && err == nil {
		if len(words) != 2 {
			return 0, false, false
		}
		var over float64
		over, err = strconv.ParseFloat(words[1], 64)
		v /= over
	}
	return v, false, err == nil
}

// set writes the limits of controller in p and reads them back.
func (m maker) set(p place, controller string) error {
	done := map[string]bool{}
	for _, s := range m.limits.settings(p.version, controller) {
		file := filepath.Join(p.dir, s.file)
		err := m.write(file, s.value)
		switch {
		case errors.Is(err, os.ErrNotExist) && s.extra:
			continue
		case errors.Is(err, os.ErrNotExist) && s.what == Swap && !m.swaps:
			continue // a kernel that cannot swap
		case errors.Is(err, os.ErrNotExist) && s.what == Swap:
			m.lack(Swap, "the kernel does not account for swap; start it with swapaccount=1, or turn swap off")
			continue
		case err != nil:
			m.lack(s.what, err.Error())
			done[s.what] = false
			continue
		}
		back, err := readFile(file)
		if err != nil {
			return err
		}
		if back != s.value {
			return fmt.Errorf("%s was set to %s and reads %q", file, s.value, back)
		}
		if _, failed := done[s.what]; !failed {
			done[s.what] = true
		}
	}
	for what, ok := range done {
		if ok && m.leaf.missing[what] == "" {
			m.leaf.enforced = append(m.leaf.enforced, what)
		}
	}
	return nil
}

func (m maker) lack(what, why string) {
	if m.leaf.missing[what] == "" {
		m.leaf.missing[what] = why
	}
}

// maxFile bounds what is read of a control file: a list of processes is the longest.
const maxFile = 16 << 20

// readFile returns the text of a control file without its last line end.
func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// writeFile writes a control file that is there, in one call.
func writeFile(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
