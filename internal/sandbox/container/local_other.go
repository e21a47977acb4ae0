//go:build !linux

package container

import (
	"context"
	"errors"

	"ringfence/internal/sandbox"
)

// child does nothing here: only on Linux is a program like this one a container's
// init.
func child([]string) {}

// startLocal is not reached: no engine is on this kernel.
func (*Tier) startLocal(_, _ context.Context, _ *box, _ sandbox.Spec, _ *plan, _ createBody, _ string) error {
	return errors.ErrUnsupported
}
