//go:build unix

package proc

import (
	"fmt"
	"syscall"
)

// NoCores has the kernel write no core of this process and its children from now on,
// whatever it dies of: their memory would be in a file.
//
// The limit is 1 byte and not 0: Linux hands a core to a program (core_pattern with "|")
// whatever the limit is, but for this value (fs/coredump.c).
func NoCores() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("forbidding cores: %w", err)
	}
	return nil
}
