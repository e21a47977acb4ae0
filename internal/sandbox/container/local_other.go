//go:build !linux

package container

import (
	"context"
	"errors"

	"ringfence/internal/sandbox"
)

// Child does nothing here: only on Linux is a program like this one a container's
// init.
func Child([]string) {}

// startLocal is not reached: no engine is on this kernel.
func (t *Tier) startLocal(_, _ context.Context, _ *engine, _ sandbox.Spec, _ *plan, _ imageAnswer) (*box, error) {
	return nil, errors.ErrUnsupported
}
