//go:build !linux

package proc

import (
	"context"
	"errors"
	"fmt"
)

// Ended reports whether no process has the number pid any more. It is false where that
// is not known, as here.
func Ended(int) bool { return false }

// AwaitEnd is not to be had here.
func AwaitEnd(_ context.Context, pid int) error {
	return fmt.Errorf("waiting for process %d: %w", pid, errors.ErrUnsupported)
}
