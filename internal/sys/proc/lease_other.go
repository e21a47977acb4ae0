//go:build !linux

package proc

import "os"

func ownPID() int { return os.Getpid() }

func leaseOf(pid int) Lease { return Lease{PID: pid} }
