package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/config"
	"ringfence/internal/egress"
	"ringfence/internal/egress/provider"
	"ringfence/internal/egress/registry"
)

// services are what a box may ask that is decided as what it is, not as a request to some
// host: registries of packages, and what runs models.
type services struct {
	conf       config.Config
	network    bool // the box has one
	registries []registry.Place
	profile    provider.Profile
	quiet      []string // hosts that the agent asks for what nobody wants
}

// services are those that the box of f may ask.
func (f *execFlags) services(ctx context.Context, s *streams, conf config.Config) (services, error) {
	if f.net != netPolicy {
		if f.providerProfile != "" {
			return services{}, &exitError{code: codeUsage, err: errors.New("--provider-profile is for a box that reaches models"), hint: "add --net policy"}
		}
		return services{conf: conf}, nil
	}
	p, err := profileOf(conf, f.providerProfile)
	if err != nil {
		return services{}, err
	}
	known := servicesOf(ctx, s, conf)
	known.profile, known.quiet = p, f.guest.quiet()
	return known, nil
}

// profileOf is the profile of that name; "" is none.
func profileOf(conf config.Config, name string) (provider.Profile, error) {
	var names []string
	for _, p := range conf.Profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if name == "" {
		return provider.Profile{}, nil
	}
	e := &exitError{code: codeUsage, err: fmt.Errorf("there is no profile %q", name), hint: "models.profiles of the configuration has none"}
	if len(names) > 0 {
		e.hint = "one of: " + strings.Join(names, ", ")
	}
	if near := nearest(name, names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return provider.Profile{}, e
}

// keyed is env with something that clients of the provider that the profile stands for
// have for a key: most do not begin without one.
func (v services) keyed(env []string) []string {
	from, ok := v.conf.Models.Named(v.profile.From)
	if !ok || len(from.Variables) == 0 || slices.ContainsFunc(env, func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return value != "" && slices.Contains(from.Variables, name)
	}) {
		return env
	}
	return append(slices.Clip(env), from.Variables[0]+"="+provider.StandIn)
}

// servicesOf finds them on this machine. What of the settings of package managers cannot
// be read is said, and their registries are then hosts like others.
func servicesOf(ctx context.Context, s *streams, conf config.Config) services {
	all, wrong := registriesOf(ctx, conf)
	s.sayEach("registries: %s", wrong)
	return services{conf: conf, network: true, registries: placesOf(all)}
}

// reads are the names of their hosts, to which connections are opened before anything is
// decided. Of a box without a network there are none.
func (v services) reads() (hosts []string) {
	if !v.network {
		return nil
	}
	add := func(host string, isAddr bool) {
		if !isAddr && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	for _, p := range v.registries {
		_, isAddr := p.URL.Host.Addr()
		add(p.URL.Host.String(), isAddr)
		for _, h := range p.Files {
			_, isAddr := h.Addr()
			add(h.String(), isAddr)
		}
	}
	for _, h := range v.conf.Models.Hosts() {
		_, isAddr := h.Addr()
		add(h.String(), isAddr)
	}
	return hosts
}

// in is o with them.
func (v services) in(o egress.Options) egress.Options {
	o.Registries, o.Models, o.Prices, o.Profile = v.registries, v.conf.Models, v.conf.Prices, v.profile
	o.Quiet = v.quiet
	return o
}

// budgetOf is what flags say of the budget; nil if nothing.
func budgetOf(tokens, dollars number) *act.Budget {
	if tokens == 0 && dollars == 0 {
		return nil
	}
	return &act.Budget{Tokens: int64(tokens), MicroUSD: int64(dollars) * 1_000_000}
}
