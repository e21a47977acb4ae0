// Package cgroup bounds what a box may use as a whole: memory, processes and
// processor time, by a control group of its own (a leaf) in version 1 or 2 of the
// kernel's hierarchies, or in both.
//
// It moves no process but those it is told to, and enables no controller for groups
// other than its own. That there is no place for a leaf is no error: the leaf then
// says what it lacks, why, and what would help. It is not a wall: a process that can
// write to a cgroup file system leaves its group, and one of the owner's user can do
// so from outside. Inside a box no cgroup file system may be mounted; that keeps
// "release_agent" and the groups beside the leaf out of reach.
//
// Invariants:
//
//	G1  What a leaf says it enforces was read back from the kernel after it was set.
//	    A value that reads back as another is an error, and the leaf is undone.
//	G2  A leaf is never made where the box would be freer than we are: outside our
//	    own group only past groups without a tighter limit than the leaf's.
//	G3  Nothing half-made stays: a failed Make has removed what it made, or says what
//	    stays.
//	G4  Kill ends everything in the leaf, and only that: no process is signalled by a
//	    number that may have passed to another.
//
// Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/*.rst,
// cgroups(7).
package cgroup

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// What can be limited, as in Enforced and Missing.
const (
	Memory = "memory"
	Swap   = "swap" // none at all; goes with Memory
	PIDs   = "pids"
	CPU    = "cpu"
)

// Prefix starts the name of every directory made here.
const Prefix = "ringfence."

// Limits are the bounds of a leaf. A member of 0 or less sets none.
type Limits struct {
	Memory    int64   // bytes, kernel memory and page cache included; rounded down to pages. Swap is then off.
	Processes int64   // tasks: every thread counts
	CPUs      float64 // processors' worth of time; 0.01 is the least
}

// The period of processor time, in microseconds: the kernel's own default. The quota
// is CPUs times that.
const period = 100_000

const (
	minCPUs = 0.01 // the kernel takes no quota below 1 ms
	maxCPUs = 1 << 16
	maxName = 128
)

func (l Limits) check() error {
	switch {
	case math.IsNaN(l.CPUs) || l.CPUs > maxCPUs || l.CPUs > 0 && l.CPUs < minCPUs:
		return fmt.Errorf("cgroup: %v processors are not between %v and %d", l.CPUs, minCPUs, maxCPUs)
	case l.Memory > 0 && l.Memory < pageSize():
		return fmt.Errorf("cgroup: %d bytes of memory are less than a page", l.Memory)
	}
	return nil
}

// wanted returns the controllers that l needs, in the order they are reported.
func (l Limits) wanted() []string {
	var names []string
	if l.Memory > 0 {
		names = append(names, Memory)
	}
	if l.Processes > 0 {
		names = append(names, PIDs)
	}
	if l.CPUs > 0 {
		names = append(names, CPU)
	}
	return names
}

func (l Limits) quota() int64 { return int64(math.Round(l.CPUs * period)) }

// A setting is one value in one control file.
type setting struct {
	what  string // Memory, Swap, PIDs or CPU
	file  string
	value string // as it is written, and as it must read back
	extra bool   // one more safety, on what an earlier setting holds; a missing file is no matter
}

// settings returns what is written for the controller, in order.
func (l Limits) settings(version int, controller string) []setting {
	// Rounded as the kernel does, so that it reads back the same.
	memory := fmt.Sprint(l.Memory / pageSize() * pageSize())
	switch fmt.Sprintf("%s v%d", controller, version) {
	case "memory v2":
		return []setting{
			{what: Memory, file: "memory.max", value: memory},
			{what: Swap, file: "memory.swap.max", value: "0"},
		}
	case "memory v1":
		// The second bounds memory and swap together, so that there is no swap.
		return []setting{
			{what: Memory, file: "memory.limit_in_bytes", value: memory},
			{what: Swap, file: "memory.memsw.limit_in_bytes", value: memory},
			{what: Swap, file: "memory.swappiness", value: "0", extra: true},
		}
	case "pids v2", "pids v1":
		return []setting{{what: PIDs, file: "pids.max", value: fmt.Sprint(l.Processes)}}
	case "cpu v2":
		return []setting{{what: CPU, file: "cpu.max", value: fmt.Sprintf("%d %d", l.quota(), period)}}
	case "cpu v1":
		return []setting{
			{what: CPU, file: "cpu.cfs_period_us", value: fmt.Sprint(period)},
			{what: CPU, file: "cpu.cfs_quota_us", value: fmt.Sprint(l.quota())},
		}
	}
	return nil
}

func pageSize() int64 { return int64(os.Getpagesize()) }

func checkName(name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	if name == "" || len(name) > maxName || strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) >= 0 {
		return fmt.Errorf("cgroup: name %q is not 1 to %d of letters, digits, dot, dash and underscore", name, maxName)
	}
	return nil
}

// Usage is what a leaf has used and what it was refused. A member is -1 where the
// kernel does not say.
type Usage struct {
	MemoryPeak      int64 // bytes, the most at one time
	OOMKills        int64 // processes killed because the memory limit was reached
	PIDsDenied      int64 // forks refused because of the process limit
	CPUMicros       int64 // processor time used
	ThrottledMicros int64 // time held back by the processor limit
}
