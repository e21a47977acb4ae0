package native

import (
	"context"

	"ringfence/internal/sandbox"
)

func (t Tier) probe(ctx context.Context) (sandbox.Report, error) {
	out, err := sandbox.Run(ctx, t, sandbox.Spec{Argv: []string{"/bin/true"}, Profile: sandbox.ProfileAgent}, nil)
	return out.Report, err
}
