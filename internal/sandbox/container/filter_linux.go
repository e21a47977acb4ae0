package container

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox/native/filter"
)

// denyCalls installs the filter of native boxes. The default filters of Docker and
// Podman are allow-lists that serve every container there is: depending on their age
// they let through 32-bit calls, ptrace, io_uring or new user namespaces, and all let a
// program set the bit that runs a file as its owner. The stage can only add: the kernel
// takes the strictest answer of all filters (seccomp(2)). Where names are held it
// returns a descriptor at which calls are handed over, else -1.
func denyCalls(o order) (listener int, err error) {
	holds := o.Hold != nil
	program, err := filter.Build(filter.Options{
		Agent: o.Wide, Namespaces: true, Unix: o.Sockets, Inet: o.Sockets, RouteNetlink: o.Sockets,
		Hold: holds, Sockets: holds && o.Sockets,
	})
	if err != nil {
		return -1, fmt.Errorf("filtering system calls: %w", err)
	}
	var flags uintptr = unix.SECCOMP_FILTER_FLAG_TSYNC
	if holds {
		flags |= unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	n, err := installFilter(program, flags)
	if err != nil {
		return -1, fmt.Errorf("filtering system calls: %w", err)
	}
	if !holds {
		return -1, nil
	}
	return n, nil
}
