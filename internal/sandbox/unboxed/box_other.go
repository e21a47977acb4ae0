//go:build !linux

package unboxed

import (
	"context"
	"fmt"

	"ringfence/internal/sandbox"
)

func supported() error { return sandbox.ErrUnsupported }

// Start implements [sandbox.Tier]. A tree cannot be ended here with certainty, so
// none is started.
func (Tier) Start(context.Context, sandbox.Spec) (sandbox.Box, error) {
	return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, sandbox.ErrUnsupported)
}
