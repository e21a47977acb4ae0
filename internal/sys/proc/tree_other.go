//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"os"
)

// KillTree ends process pid only: there is no portable way to find what descends
// from it, and the error says so.
func KillTree(pid int) error {
	if pid <= 1 || pid == os.Getpid() {
		return fmt.Errorf("ending process %d: refused", pid)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	return fmt.Errorf("ending what descends from process %d: %w", pid, errors.ErrUnsupported)
}

// AwaitExit is not to be had here; the caller waits and reaps in one step.
func AwaitExit(pid int) error {
	return fmt.Errorf("waiting for process %d: %w", pid, errors.ErrUnsupported)
}

// SealDescriptors does nothing where inherited descriptors cannot be listed; the
// runtime's own are always closed on exec.
func SealDescriptors() error { return nil }
