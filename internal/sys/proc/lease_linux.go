package proc

import (
	"os"
	"strconv"
	"strings"
)

func ownPID() int { return os.Getpid() }

func leaseOf(pid int) Lease {
	l := Lease{PID: pid}
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		l.Start = startOf(string(text))
	}
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		l.Boot = strings.TrimSpace(string(text))
	}
	return l
}
