package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
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
	Budget    *budgets            `json:"budget"`
	Profiles  map[string]profile  `json:"profiles"`
}

// profile is one entry of models.profiles, by its name.
type profile struct {
	From   string            `json:"from"`
	To     string            `json:"to"`
	Models map[string]string `json:"models"`
	Secret string            `json:"secret"`
}

func (l *loader) profiles(all map[string]profile) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := "/models/profiles/" + strictjson.Escape(name)
		p := provider.Profile{Name: name, From: all[name].From, To: all[name].To, Models: all[name].Models, Secret: all[name].Secret}
		if err := p.Check(l.config.Models); err != nil {
			return l.invalid(at, "profile %q: %v", name, err)
		}
		l.config.Profiles = append(l.config.Profiles, p)
	}
	l.settings = append(l.settings, l.setting("models.profiles", strings.Join(slices.Sorted(maps.Keys(all)), ", "), all != nil))
	return nil
}

// Budgets are what may be used of models: by one session, and by one persona in a day of
// UTC. What is 0 is not bounded.
type Budgets struct{ Session, Day Budget }

// A Budget bounds the use of models. What is 0 is not bounded.
type Budget struct {
	Tokens   int64
	MicroUSD int64 // millionths of a dollar
	Requests int64
	AtOnce   int64 // requests under way
}

type budgets struct {
	Session *budget `json:"session"`
	Day     *budget `json:"day"`
}

type budget struct {
	Tokens   int64   `json:"tokens"`
	USD      float64 `json:"usd"`
	Requests int64   `json:"requests"`
	AtOnce   int64   `json:"at_once"`
}

func (l *loader) budget(key string, b *budget) (Budget, error) {
	if b == nil {
		l.settings = append(l.settings, l.setting(key, "", false))
		return Budget{}, nil
	}
	if min(b.Tokens, b.Requests, b.AtOnce) < 0 || b.USD < 0 || b.USD > 1e9 {
		return Budget{}, l.invalid(pointer(key), "a budget is not below zero, and has at most 1000000000 dollars")
	}
	var text []string
	for what, n := range map[string]int64{"tokens": b.Tokens, "requests": b.Requests, "at once": b.AtOnce} {
		if n > 0 {
			text = append(text, strconv.FormatInt(n, 10)+" "+what)
		}
	}
	if b.USD > 0 {
		text = append(text, strconv.FormatFloat(b.USD, 'f', -1, 64)+" usd")
	}
	slices.Sort(text)
	l.settings = append(l.settings, l.setting(key, strings.Join(text, ", "), true))
	return Budget{Tokens: b.Tokens, MicroUSD: int64(b.USD * 1e6), Requests: b.Requests, AtOnce: b.AtOnce}, nil
}

// price is in dollars for a million tokens.
type price struct {
	Model      string  `json:"model"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
}

// inClear is why a service is not reached at an address: what is sent to it, a key among it,
// could be read on the way. "" if it can be, or the address is none.
func inClear(address string) string {
	u, err := weburl.Parse(address)
	if err != nil || u.Scheme != "http" || u.Host.String() == "localhost" {
		return ""
	}
	if a, ok := u.Host.Addr(); ok && (a.IsLoopback() || a.IsPrivate()) {
		return ""
	}
	return fmt.Sprintf("%q is not https, so its key could be read on the way: http is for localhost and addresses of loopback and of private networks", address)
}

func (l *loader) models(m *models) error {
	if m == nil {
		m = &models{}
	}
	for i, p := range m.Providers {
		if why := inClear(p.URL); why != "" {
			return l.invalid("/models/providers/"+strconv.Itoa(i)+"/url", "%s", why)
		}
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
	if err := l.profiles(m.Profiles); err != nil {
		return err
	}
	if m.Budget == nil {
		m.Budget = &budgets{}
	}
	if l.config.Budgets.Session, err = l.budget("models.budget.session", m.Budget.Session); err != nil {
		return err
	}
	l.config.Budgets.Day, err = l.budget("models.budget.day", m.Budget.Day)
	return err
}
