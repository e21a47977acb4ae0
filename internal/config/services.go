package config

import (
	"strconv"
	"strings"

	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/provider"
	"ringfence/internal/egress/registry"
)

// registryAt is one entry of network.registries.
type registryAt struct {
	Kind  string   `json:"kind"`
	URL   string   `json:"url"`
	Files []string `json:"files"` // hosts
}

func (l *loader) registries(all []registryAt) error {
	var text []string
	for i, r := range all {
		at := "/network/registries/" + strconv.Itoa(i)
		p := registry.Place{Ecosystem: registry.Ecosystem(r.Kind)}
		u, err := weburl.Parse(r.URL)
		switch {
		case !p.Ecosystem.Known():
			return l.invalid(at+"/kind", "%q is no kind of registry; known are %s", r.Kind, kinds())
		case err != nil || u.HasQuery || u.Scheme != "https" && u.Scheme != "http":
			return l.invalid(at+"/url", `%q is not the address of a registry, as in "https://registry.example.com/"`, r.URL)
		}
		p.URL = u.Request()
		for n, name := range r.Files {
			host, err := weburl.ParseHost(name)
			if err != nil {
				return l.invalid(at+"/files/"+strconv.Itoa(n), "%q is no host", name)
			}
			p.Files = append(p.Files, host)
		}
		l.config.Network.Registries = append(l.config.Network.Registries, p)
		text = append(text, r.Kind+" "+p.URL.String())
	}
	l.settings = append(l.settings, l.setting("network.registries", strings.Join(text, ", "), all != nil))
	return nil
}

func kinds() string {
	var out []string
	for _, e := range registry.Ecosystems() {
		out = append(out, string(e))
	}
	return strings.Join(out, ", ")
}

// models is the member of the same name: services that run models, and what they cost.
type models struct {
	Providers []provider.Provider `json:"providers"`
	Prices    []price             `json:"prices"`
}

// price is in dollars for a million tokens.
type price struct {
	Model      string  `json:"model"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
}

func (l *loader) models(m *models) error {
	if m == nil {
		m = &models{}
	}
	table, err := provider.New(m.Providers)
	if err != nil {
		return l.invalid("/models/providers", "%v", err)
	}
	var all []provider.Price
	var text []string
	for i, p := range m.Prices {
		for _, v := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
			if v < 0 || v > 1e6 {
				return l.invalid("/models/prices/"+strconv.Itoa(i), "a million tokens cost from 0 to 1000000 dollars, not %v", v)
			}
		}
		all = append(all, provider.Price{
			Model: p.Model, Input: int64(p.Input * 1e6), Output: int64(p.Output * 1e6),
			CacheRead: int64(p.CacheRead * 1e6), CacheWrite: int64(p.CacheWrite * 1e6),
		})
		text = append(text, p.Model)
	}
	prices, err := provider.NewPrices(all)
	if err != nil {
		return l.invalid("/models/prices", "%v", err)
	}
	l.config.Models, l.config.Prices = table, prices
	var names []string
	for _, p := range m.Providers {
		names = append(names, p.Name)
	}
	l.settings = append(l.settings,
		l.setting("models.providers", strings.Join(names, ", "), m.Providers != nil),
		l.setting("models.prices", strings.Join(text, ", "), m.Prices != nil))
	return nil
}
