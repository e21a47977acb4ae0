package container

import (
	"fmt"

	"ringfence/internal/sandbox/native/filter"
)

// denyCalls installs the filter of native boxes. The default filters of Docker and
// Podman are allow-lists that serve every container there is: depending on their age
// they let through 32-bit calls, ptrace, io_uring or new user namespaces, and all let a
// program set the bit that runs a file as its owner. The stage can only add: the kernel
// takes the strictest answer of all filters (seccomp(2)).
func denyCalls(wide, sockets bool) error {
	program, err := filter.Build(filter.Options{Agent: wide, Namespaces: true, Unix: sockets, Inet: sockets, RouteNetlink: sockets})
	if err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	if err := installFilter(program); err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	return nil
}
