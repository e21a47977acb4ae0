package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/config"
	"ringfence/internal/sandbox/doctor"
	"ringfence/internal/sys/proc"
)

// A diagnosis is the result of "ringfence doctor".
type diagnosis struct {
	System     string           `json:"system"` // "linux/amd64"
	Configured string           `json:"configured"`
	From       string           `json:"from"` // where that was said
	Permissive bool             `json:"permissive"`
	Tiers      []doctor.Finding `json:"tiers"`
	Advice     []string         `json:"advice,omitempty"`
	Good       bool             `json:"good"` // the configured tier holds
}

// newDoctor is "ringfence doctor".
func newDoctor(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Find out what boxes hold on this machine",
		Long: "Build a box of every tier that there is, attack from inside it, and say what held,\n" +
			"what did not, and what would have to be done. What is said was tried just now.",
		Annotations: exits(status{codeFailed, "the configured tier does not hold here"}),
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := diagnose(c.Context())
			if err != nil {
				return err
			}
			if err := s.value(d, func() string { return d.text() }); err != nil {
				return err
			}
			if !d.Good {
				return &exitError{code: codeFailed}
			}
			return nil
		},
	}
}

func diagnose(ctx context.Context) (diagnosis, error) {
	conf, from, err := settings()
	if err != nil {
		return diagnosis{}, err
	}
	self, err := proc.Executable()
	if err != nil {
		return diagnosis{}, err
	}
	d := diagnosis{
		System: doctor.System(), Configured: conf.Box.Tier, From: from.Of("box.tier"), Permissive: conf.Box.Permissive,
	}
	for _, name := range []string{config.TierNative, config.TierContainer} {
		t, err := tierNamed(conf.Box, name)
		if err != nil {
			return diagnosis{}, err
		}
		f := doctor.Examine(ctx, t, self, "attack")
		d.Tiers = append(d.Tiers, f)
		if name == conf.Box.Tier {
			d.Good = f.Holds()
		}
	}
	if conf.Box.Passed != "" {
		d.Advice = append(d.Advice, passedOver(conf.Box)+".")
	}
	d.advise()
	return d, ctx.Err()
}

// advise compares with where each tier is meant to be used.
func (d *diagnosis) advise() {
	say := func(format string, a ...any) { d.Advice = append(d.Advice, fmt.Sprintf(format, a...)) }
	if !d.Good {
		say("The configured tier, %s, does not hold here: verbs that need it refuse to run anything.", d.Configured)
	}
	for _, f := range d.Tiers {
		if f.Tier != d.Configured && f.Holds() && !d.Good {
			say("The tier %s holds: choose it with {\"box\": {\"tier\": %q}} in config.json.", f.Tier, f.Tier)
		}
	}
	if d.Permissive {
		say("Permissive is set: what cannot be boxed runs all the same, and every record says so. Unset it outside development.")
	}
	if s := doctor.Advice(); s != "" {
		say("%s", s)
	}
}

func (d diagnosis) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "This machine is %s. Configured: %s (%s).\n", d.System, d.Configured, d.From)
	for _, f := range d.Tiers {
		fmt.Fprintf(&b, "\n%s: %s\n", f.Tier, inWords(f))
		if f.Error != "" {
			fmt.Fprintf(&b, "  %s\n", f.Error)
			continue
		}
		fmt.Fprintf(&b, "  %s\n", f.Report)
		for _, layer := range append(append([]string{}, f.Report.Missing...), f.Report.Inferred...) {
			if why := f.Report.Evidence[layer]; why != "" {
				fmt.Fprintf(&b, "  %s: %s\n", layer, why)
			}
		}
		attacks, held := 0, 0
		for _, t := range f.Trials {
			switch {
			case !t.Good():
				fmt.Fprintf(&b, "  ✗ %s: %s\n", t.Name, t.Answer)
			case t.Attack:
				held++
			}
			if t.Attack {
				attacks++
			}
		}
		fmt.Fprintf(&b, "  %d of %d attacks held\n", held, attacks)
	}
	if len(d.Advice) > 0 {
		b.WriteString("\n" + strings.Join(d.Advice, "\n") + "\n")
	}
	return b.String()
}

func inWords(f doctor.Finding) string {
	switch {
	case f.Error != "":
		return "cannot be used"
	case f.Holds() && f.Report.Complete():
		return "holds"
	case f.Holds():
		return "holds, with parts missing"
	}
	return "DOES NOT HOLD"
}

// newAttack is "ringfence attack", the inside of a box of "ringfence doctor".
func newAttack(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:    "attack WORLD",
		Short:  "Be the attacker in a box",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return doctor.Attack(args[0], s.out) },
	}
}
