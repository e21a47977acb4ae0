package container

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ringfence/internal/sandbox"
)

// Probe implements [sandbox.Tier]. It makes a container and, where the init is ours,
// tries in it what must not be possible.
func (t *Tier) Probe(ctx context.Context) (sandbox.Report, error) {
	e, err := t.probed(ctx)
	if err != nil {
		return sandbox.Report{}, fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
	}
	if !e.local {
		return t.probeRemote(ctx)
	}
	out, err := sandbox.Run(ctx, t, sandbox.Spec{Argv: []string{initPath, tryVerb}, Limits: sandbox.Limits{AddressSpace: sandbox.Unlimited}}, nil)
	switch {
	case err != nil:
		return sandbox.Report{}, fmt.Errorf("trying out a container: %w", err)
	case out.Exit.Status() != 0:
		return sandbox.Report{}, fmt.Errorf("trying out a container: in it one can %s (%v)",
			strings.TrimSpace(string(out.Stdout)+string(out.Stderr)), out.Exit)
	}
	return out.Report, nil
}

// probed looks for engine and image, without which this tier cannot work.
func (t *Tier) probed(ctx context.Context) (*engine, error) {
	if err := t.o.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	e, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := e.image(ctx, t.o.image()); err != nil {
		t.forget()
		return nil, err
	}
	return e, nil
}

var errProbed = errors.New("only a probe")

// probeRemote makes a container and asks about it. What the image holds is not
// known, so nothing is started in it but what every image is likely to have.
func (t *Tier) probeRemote(ctx context.Context) (sandbox.Report, error) {
	var report sandbox.Report
	_, err := t.Start(ctx, sandbox.Spec{
		Argv:    []string{"/"}, // is in every image, and nothing is run
		Confirm: func(r sandbox.Report) error { report = r; return errProbed },
	})
	if !errors.Is(err, errProbed) {
		return sandbox.Report{}, fmt.Errorf("trying out a container: %w", err)
	}
	return report, nil
}
