// Package jobobject confines processes on Windows by what that system has for it: a
// Job Object, which limits a tree of processes and ends it, and a token that takes
// rights from its first process.
//
// It is no sandbox of files and networks: what every user may read, a process in a job
// can read, and it can connect to everything. It decides nothing about what a box may
// do. What is not a call of the system is in files for every platform, and tested there.
//
// Invariants:
//
//	J1  No process runs in a job before its limits were set and read back: it is made
//	    suspended, assigned, and then resumed.
//	J2  When the last handle of a job is closed, for whatever reason, its processes end.
//	    No process of a job has one.
//	J3  A process in a job cannot leave it, nor start one outside.
//	J4  A process gets the handles that it is given, and no other.
package jobobject

import (
	"fmt"
	"math"
	"time"
)

// The flags of JOBOBJECT_BASIC_LIMIT_INFORMATION.LimitFlags (winnt.h).
const (
	limitProcessTime   = 0x00000002
	limitActiveProcess = 0x00000008
	limitProcessMemory = 0x00000100
	limitJobMemory     = 0x00000200
	limitDieOnCrash    = 0x00000400 // no dialog that waits for somebody
	limitBreakaway     = 0x00000800
	limitSilentBreak   = 0x00001000
	limitKillOnClose   = 0x00002000
)

// The flags of JOBOBJECT_BASIC_UI_RESTRICTIONS.UIRestrictionsClass (winnt.h).
const (
	uiHandles          = 0x00000001 // of windows outside the job
	uiReadClipboard    = 0x00000002
	uiWriteClipboard   = 0x00000004
	uiSystemParameters = 0x00000008
	uiDisplaySettings  = 0x00000010
	uiGlobalAtoms      = 0x00000020
	uiDesktop          = 0x00000040 // making and switching desktops
	uiExitWindows      = 0x00000080

	uiAll = uiHandles | uiReadClipboard | uiWriteClipboard | uiSystemParameters |
		uiDisplaySettings | uiGlobalAtoms | uiDesktop | uiExitWindows
)

// basicLimits is JOBOBJECT_BASIC_LIMIT_INFORMATION of 64-bit Windows.
type basicLimits struct {
	perProcessUserTimeLimit int64 // in units of 100 ns
	perJobUserTimeLimit     int64
	limitFlags              uint32
	minimumWorkingSetSize   uintptr
	maximumWorkingSetSize   uintptr
	activeProcessLimit      uint32
	affinity                uintptr
	priorityClass           uint32
	schedulingClass         uint32
}

// ioCounters is IO_COUNTERS.
type ioCounters struct {
	_ [6]uint64 // operations, then bytes, that were read, written, other
}

// extendedLimits is JOBOBJECT_EXTENDED_LIMIT_INFORMATION.
type extendedLimits struct {
	basic                 basicLimits
	io                    ioCounters
	processMemoryLimit    uintptr
	jobMemoryLimit        uintptr
	peakProcessMemoryUsed uintptr
	peakJobMemoryUsed     uintptr
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	_      [4]int64 // user and kernel time, in all and in this period
	_      uint32   // page faults
	_      uint32   // processes in all
	active uint32
	_      uint32 // processes that ended because of a limit
}

// Limits bound what the processes of a job use. A member that is not positive is no
// limit.
type Limits struct {
	Memory        int64         // bytes, committed by all processes together
	ProcessMemory int64         // bytes, committed by each process
	Processes     int           // at the same time
	CPU           time.Duration // of each process, in its own code
}

// Settings are what a job is set to, and what it says that it is set to.
type Settings struct {
	Flags, UI     uint32
	Processes     uint32
	ProcessTime   int64 // in units of 100 ns
	ProcessMemory uint64
	Memory        uint64
}

// tick is the unit of times of Windows.
const tick = 100 * time.Nanosecond

// Settings returns the settings of a job with the limits l. In every job the last
// handle takes the processes along, a crash ends a process without asking, and all that
// user interfaces share is out of reach; no process can break away.
func (l Limits) Settings() Settings {
	s := Settings{Flags: limitKillOnClose | limitDieOnCrash, UI: uiAll}
	if l.Memory > 0 {
		s.Flags |= limitJobMemory
		s.Memory = uint64(l.Memory)
	}
	if l.ProcessMemory > 0 {
		s.Flags |= limitProcessMemory
		s.ProcessMemory = uint64(l.ProcessMemory)
	}
	if l.Processes > 0 {
		s.Flags |= limitActiveProcess
		s.Processes = uint32(min(int64(l.Processes), math.MaxUint32))
	}
	if l.CPU > 0 {
		s.Flags |= limitProcessTime
		s.ProcessTime = max(1, int64(l.CPU/tick))
	}
	return s
}

// Differs says in what got, read back, is not s; nil if in nothing.
func (s Settings) Differs(got Settings) []string {
	var wrong []string
	compare := func(what string, a, b any) {
		if a != b {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not %v", what, b, a))
		}
	}
	compare("limit flags", fmt.Sprintf("%#x", s.Flags), fmt.Sprintf("%#x", got.Flags))
	compare("UI limits", fmt.Sprintf("%#x", s.UI), fmt.Sprintf("%#x", got.UI))
	for _, m := range []struct {
		flag uint32
		what string
		a, b any
	}{
		{limitActiveProcess, "active processes", s.Processes, got.Processes},
		{limitProcessTime, "user time of each process", s.ProcessTime, got.ProcessTime},
		{limitProcessMemory, "memory of each process", s.ProcessMemory, got.ProcessMemory},
		{limitJobMemory, "memory of the job", s.Memory, got.Memory},
	} {
		// What is not limited may read as anything.
		if s.Flags&m.flag != 0 {
			compare(m.what, m.a, m.b)
		}
	}
	return wrong
}

// Names returns what s limits, as it stands in reports.
func (s Settings) Names() []string {
	var names []string
	for _, m := range []struct {
		has  bool
		name string
	}{
		{s.Flags&limitKillOnClose != 0, "kill-on-close"},
		{s.UI == uiAll, "ui"},
		{s.Flags&(limitBreakaway|limitSilentBreak) == 0, "no-breakaway"},
		{s.Flags&limitJobMemory != 0, "memory"},
		{s.Flags&limitProcessMemory != 0, "process-memory"},
		{s.Flags&limitActiveProcess != 0, "processes"},
		{s.Flags&limitProcessTime != 0, "cpu"},
	} {
		if m.has {
			names = append(names, m.name)
		}
	}
	return names
}

// structures returns what the calls of Windows take for s.
func (s Settings) structures() (limits extendedLimits, ui uint32) {
	limits.basic.limitFlags = s.Flags
	limits.basic.activeProcessLimit = s.Processes
	limits.basic.perProcessUserTimeLimit = s.ProcessTime
	limits.processMemoryLimit = uintptr(s.ProcessMemory)
	limits.jobMemoryLimit = uintptr(s.Memory)
	return limits, s.UI
}

// settingsOf is the reverse of structures.
func settingsOf(limits extendedLimits, ui uint32) Settings {
	return Settings{
		Flags: limits.basic.limitFlags, UI: ui,
		Processes: limits.basic.activeProcessLimit, ProcessTime: limits.basic.perProcessUserTimeLimit,
		ProcessMemory: uint64(limits.processMemoryLimit), Memory: uint64(limits.jobMemoryLimit),
	}
}

// LowIntegrity is the label of a process that may not write to what is not labelled so
// (S-1-16-4096, SECURITY_MANDATORY_LOW_RID).
const LowIntegrity = "S-1-16-4096"

// A Token is what is known of the token of a process.
type Token struct {
	Integrity  string   // its label, a SID
	Privileges []string // by name; of what is taken only SeChangeNotifyPrivilege is left
}

// Restricted says in what t is not the token that a process of a job gets; nil if in
// nothing.
func (t Token) Restricted() []string {
	var wrong []string
	if t.Integrity != LowIntegrity {
		wrong = append(wrong, fmt.Sprintf("its label is %s, not %s", t.Integrity, LowIntegrity))
	}
	for _, p := range t.Privileges {
		if p != traverse {
			wrong = append(wrong, "it has the privilege "+p)
		}
	}
	return wrong
}

// traverse is the privilege to pass through directories that one may not list. All
// users have it, and DISABLE_MAX_PRIVILEGE leaves it.
const traverse = "SeChangeNotifyPrivilege"
