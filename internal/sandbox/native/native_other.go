//go:build !linux && !darwin && !windows

package native

import (
	"context"
	"fmt"

	"ringfence/internal/sandbox"
)

// Child does nothing here: boxes have no stage.
func Child() {}

func (Tier) probe(context.Context) (sandbox.Report, error) {
	return sandbox.Report{Tier: TierName}, sandbox.ErrUnsupported
}

func (Tier) start(context.Context, sandbox.Spec) (sandbox.Box, error) {
	return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, sandbox.ErrUnsupported)
}
