// Package unboxed is the tier that confines nothing, and says so: its Report has
// the tier "none" and no enforced layer, so every record reads "box: none".
//
// It exists for tool servers that a person configured as unboxed, and for machines
// and times where no other tier is to be had yet. What runs in it has all the
// rights of the person who runs us. No other tier falls back to it.
//
// What it does is housekeeping, not confinement: the program gets exactly the
// environment, directory and descriptors of its Spec; it leads a session of its
// own, with the terminal of its Spec or with none; it is told to die when we die; and it is ended as a tree
// on Kill, at its deadline, when its context ends, and when its first process ends.
// Paths, network and all limits but the deadline are not enforced.
//
// Invariants:
//
//	U1  Report never names an enforced or inferred layer.
//	U2  Nothing of our environment and no descriptor of ours is inherited.
//	U3  A process is signalled only while its number cannot have passed to another.
package unboxed

import (
	"context"

	"ringfence/internal/sandbox"
)

// Tier makes boxes that confine nothing. It has no state.
type Tier struct{}

var _ sandbox.Tier = Tier{}

// Name returns "none".
func (Tier) Name() string { return sandbox.TierNone }

// Probe returns the empty report.
func (Tier) Probe(ctx context.Context) (sandbox.Report, error) {
	if err := supported(); err != nil {
		return sandbox.Report{}, err
	}
	return report(), ctx.Err()
}

func report() sandbox.Report { return sandbox.Report{Tier: sandbox.TierNone} }
