package cli

import (
	"context"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/config"
	"ringfence/internal/egress"
	"ringfence/internal/egress/registry"
)

// services are what a box may ask that is decided as what it is, not as a request to some
// host: registries of packages, and what runs models.
type services struct {
	conf       config.Config
	network    bool // the box has one
	registries []registry.Place
}

// servicesOf finds them on this machine. What of the settings of package managers cannot
// be read is said, and their registries are then hosts like others.
func servicesOf(ctx context.Context, s *streams, conf config.Config) services {
	all, wrong := registriesOf(ctx, conf)
	s.sayEach("registries: %s", wrong)
	return services{conf, true, placesOf(all)}
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
	o.Registries, o.Models, o.Prices = v.registries, v.conf.Models, v.conf.Prices
	return o
}

// budgetOf is what flags say of the budget; nil if nothing.
func budgetOf(tokens, dollars number) *act.Budget {
	if tokens == 0 && dollars == 0 {
		return nil
	}
	return &act.Budget{Tokens: int64(tokens), MicroUSD: int64(dollars) * 1_000_000}
}
