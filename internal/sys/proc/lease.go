package proc

import "strings"

// A Lease names a process so that nothing else is taken for it: numbers of processes are
// given out again, and all of them after a start of the machine. The zero Lease is nobody's.
type Lease struct {
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"` // when it began, as the kernel counts; "" where that is not told
	Boot  string `json:"boot,omitempty"`  // of the machine; "" where that is not told
}

// OwnLease names this process.
func OwnLease() Lease { return leaseOf(ownPID()) }

// Live reports whether the process that l names is there. Where less is told of processes
// than what l says, it is taken for gone.
func (l Lease) Live() bool {
	if l.PID <= 0 || Ended(l.PID) {
		return false
	}
	return leaseOf(l.PID) == l
}

// startOf returns field 22 of the text of /proc/<pid>/stat (proc_pid_stat(5)); "" if there
// is none. The name of the program, field 2, may hold any bytes.
func startOf(stat string) string {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return ""
	}
	fields := strings.Fields(stat[i+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
