package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// Permissive is t for an operator who chose that what cannot be boxed runs all the
// same: where t cannot build a box, otherwise starts the program, warn is told why
// first, and the Report of that box says so, before the program starts and ever
// after. It is for development; nothing but the operator's own word leads here.
func Permissive(t, otherwise Tier, warn func(error)) Tier {
	return permissive{Tier: t, otherwise: otherwise, warn: warn}
}

type permissive struct {
	Tier
	otherwise Tier
	warn      func(error)
}

// confirmError marks an error of Spec.Confirm: the box was there, and whoever asked
// for it does not want it.
type confirmError struct{ error }

func (e confirmError) Unwrap() error { return e.error }

// Probe implements [Tier].
func (p permissive) Probe(ctx context.Context) (Report, error) {
	r, err := p.Tier.Probe(ctx)
	if err == nil || ctx.Err() != nil {
		return r, err
	}
	return p.loosened(Report{Tier: p.otherwise.Name()}, err), nil
}

// loosened is r as a Report of what should have been a box of the tier.
func (p permissive) loosened(r Report, why error) Report {
	r.Permissive = true
	r.Missing = append(r.Missing, p.Name())
	evidence := map[string]string{p.Name(): why.Error()}
	maps.Copy(evidence, r.Evidence)
	r.Evidence = evidence
	return r
}

// Start implements [Tier].
func (p permissive) Start(ctx context.Context, s Spec) (Box, error) {
	confirm := s.Confirm
	if confirm == nil {
		confirm = func(Report) error { return nil }
	}
	s.Confirm = func(r Report) error {
		if err := confirm(r); err != nil {
			return confirmError{err}
		}
		return nil
	}
	box, err := p.Tier.Start(ctx, s)
	var refused confirmError
	if err == nil || !errors.Is(err, ErrNotBuilt) || errors.As(err, &refused) || ctx.Err() != nil || s.Validate() != nil {
		return box, err
	}
	p.warn(fmt.Errorf("permissive: running without the box that was asked for: %w", err))
	s.Confirm = func(r Report) error { return confirm(p.loosened(r, err)) }
	box, otherErr := p.otherwise.Start(ctx, s)
	if otherErr != nil {
		return nil, errors.Join(otherErr, err)
	}
	return loosenedBox{Box: box, report: p.loosened(box.Report(), err)}, nil
}

type loosenedBox struct {
	Box
	report Report
}

// Report implements [Box].
func (b loosenedBox) Report() Report { return b.report }
