package cli

import (
	"slices"
	"strings"
	"testing"

	"ringfence/internal/config"
	"ringfence/internal/egress/provider"
)

// TestProviderProfile: a profile is one that there is, for a box with a network, whose
// clients find something in the place of a key.
func TestProviderProfile(t *testing.T) {
	table, err := provider.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	conf := config.Config{Models: table, Profiles: []provider.Profile{{Name: "cheap", From: "anthropic", To: "openai", Models: map[string]string{"*": "gpt-5"}}}}
	for _, c := range []struct{ net, name, err string }{
		{"none", "cheap", "--provider-profile is for a box that reaches models"},
		{"policy", "chep", `there is no profile "chep"`},
		{"none", "", ""},
	} {
		f := &execFlags{net: c.net, providerProfile: c.name}
		if _, err := f.services(t.Context(), nil, conf); err == nil && c.err != "" || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	p, err := profileOf(conf, "cheap")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		profile   provider.Profile
		env, want []string
	}{
		{p, []string{"A=b"}, []string{"A=b", "ANTHROPIC_API_KEY=" + provider.StandIn}},
		{p, []string{"ANTHROPIC_AUTH_TOKEN=x"}, []string{"ANTHROPIC_AUTH_TOKEN=x"}},
		{provider.Profile{}, []string{"A=b"}, []string{"A=b"}},
	} {
		if got := (services{conf: conf, profile: c.profile}).keyed(c.env); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.env, got)
		}
	}
}
