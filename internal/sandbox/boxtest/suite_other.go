//go:build !linux

package boxtest

import (
	"context"
	"fmt"

	"ringfence/internal/sandbox"
)

// A suite does not exist here: the probe speaks to the kernel of Linux.
type suite struct{}

func newSuite(context.Context, sandbox.Tier, Options) (*suite, error) {
	return nil, fmt.Errorf("the suite: %w", sandbox.ErrUnsupported)
}

func (*suite) all(context.Context, []run) ([]Outcome, error) { return nil, sandbox.ErrUnsupported }

func (*suite) close() error { return nil }
