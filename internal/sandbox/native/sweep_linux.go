package native

import (
	"context"
	"fmt"

	"ringfence/internal/sandbox/native/cgroup"
)

// Sweep removes the control groups that boxes of processes that were killed have left.
func Sweep(ctx context.Context) error {
	if _, err := cgroup.Sweep(ctx, cgroup.OwnerDead); err != nil {
		return fmt.Errorf("removing control groups of dead processes: %w", err)
	}
	return nil
}
