package sandbox

import (
	"context"
	"errors"
	"testing"
)

// confirmingTier calls Confirm like a tier does, and makes an empty box.
type confirmingTier struct{ report Report }

func (c confirmingTier) Name() string                          { return c.report.Tier }
func (c confirmingTier) Probe(context.Context) (Report, error) { return c.report, nil }

func (c confirmingTier) Start(_ context.Context, s Spec) (Box, error) {
	if err := s.Confirm(c.report); err != nil {
		return nil, errors.Join(ErrNotBuilt, err)
	}
	return reportedBox{report: c.report}, nil
}

type reportedBox struct {
	Box
	report Report
}

func (b reportedBox) Report() Report { return b.report }

func TestPermissive(t *testing.T) {
	spec := Spec{Argv: []string{"/bin/true"}}
	no := errors.New("not on record")
	for name, c := range map[string]struct {
		tier    Tier
		confirm error
		want    string // the report that is confirmed and kept; "" for an error
		warned  bool
	}{
		"a box that can be built":             {confirmingTier{Report{Tier: "a", Enforced: []string{"seccomp"}}}, nil, "box: a: seccomp", false},
		"a box that cannot be built":          {fakeTier{"a", ErrNotBuilt}, nil, "box: none; missing: a; permissive", true},
		"a program that is not there":         {fakeTier{"a", ErrNotFound}, nil, "", false},
		"a box that nobody confirms":          {confirmingTier{Report{Tier: "a"}}, no, "", false},
		"no box and nobody confirms the rest": {fakeTier{"a", ErrNotBuilt}, no, "", true},
	} {
		warned, confirmed := false, ""
		s := spec
		s.Confirm = func(r Report) error {
			confirmed = r.String()
			return c.confirm
		}
		p := Permissive(c.tier, confirmingTier{Report{Tier: TierNone}}, func(error) { warned = true })
		box, err := p.Start(t.Context(), s)
		if warned != c.warned || (err == nil) != (c.want != "") {
			t.Errorf("%s: warned %v, %v", name, warned, err)
			continue
		}
		if err == nil && (confirmed != c.want || box.Report().String() != c.want) {
			t.Errorf("%s: confirmed %q, kept %q, want %q", name, confirmed, box.Report(), c.want)
		}
	}
	r, err := Permissive(fakeTier{"a", ErrUnsupported}, confirmingTier{Report{Tier: TierNone}}, nil).Probe(t.Context())
	if err != nil || r.String() != "box: none; missing: a; permissive" {
		t.Errorf("probe: %v, %v", r, err)
	}
}

func TestProfileWorkspace(t *testing.T) {
	for p, want := range map[Profile]Mode{
		ProfileAgent: ReadWrite, ProfileServer: ReadWrite, ProfileCode: NoAccess, "other": NoAccess,
	} {
		if got := p.Workspace(); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
	if Profile("").Workspace() != ProfileCommand.Workspace() || ProfileCommand.Workspace() == NoAccess {
		t.Error("the zero profile is no command")
	}
}
