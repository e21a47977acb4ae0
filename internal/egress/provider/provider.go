// Package provider knows the services that run models: what may be asked of each, what of
// a request would have the service act on its own, what an answer used and what that
// costs. All of it is data (providers.json, prices.json of late 2025, and what a configuration adds).
//
// It connects to nothing and decides nothing: that a model may be asked is an infer
// effect, decided like any other. It holds no keys.
//
// Invariants:
//
//	V1  What is not in a provider's list of endpoints is no request to it.
//	V2  A request that cannot be read in one way (duplicate members, trailing data, no
//	    UTF-8) is refused, never passed on unread.
//	V3  After [Endpoint.Clean] a request asks the service for nothing but text: no tool
//	    that the service runs, no address that it would fetch, nothing that it stores.
//	    Members and kinds of tools that are not known here are left out.
//	V4  Usage is what the service says at the end, and an estimate on the high side until
//	    then. A stream that ends early is charged by the estimate.
//	V5  A model without a known price costs more than any budget of money.
//	V6  What is translated into another wire asks the same, or is refused. An answer that is
//	    translated ends as one that is whole only if the service said that it is.
package provider

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// A Wire is the form of requests and answers.
type Wire string

// The wires.
const (
	Messages  Wire = "anthropic-messages" // https://docs.anthropic.com/en/api/messages
	Chat      Wire = "openai-chat"        // https://platform.openai.com/docs/api-reference/chat
	Responses Wire = "openai-responses"   // https://platform.openai.com/docs/api-reference/responses
	Google    Wire = "google"             // https://ai.google.dev/api/generate-content
)

// An Endpoint is one thing that may be asked of a provider.
type Endpoint struct {
	Method string `json:"method"`
	// Path is below the provider's address; "*" stands for letters of one segment.
	Path string `json:"path"`
	// Wire is the form of what is asked; "" asks no model and has no body.
	Wire Wire `json:"wire,omitempty"`
	// Counts says that the endpoint only counts the tokens of a request: it is cleaned, and
	// costs nothing.
	Counts bool `json:"counts,omitempty"`
	// Quiet says that the request is answered by us with an empty object: telemetry.
	Quiet bool `json:"quiet,omitempty"`
}

// A Provider is one service.
type Provider struct {
	Name      string     `json:"name"` // the first part of a model's canonical text
	URL       string     `json:"url"`  // its address, with a path if it has one
	Endpoints []Endpoint `json:"endpoints"`
	// Keys are the fields that a credential goes in, the first one ours. Others that hold
	// one are taken out of a request.
	Keys []string `json:"keys"`
	// Query is a parameter that a credential may be in; "" is none.
	Query string `json:"query,omitempty"`
	// Variables are those that its clients take a credential from.
	Variables []string `json:"variables,omitempty"`

	at weburl.URL
}

//go:embed providers.json
var shipped []byte

// A Table is a set of providers.
type Table struct{ all []Provider }

// New returns the shipped providers and those of more, which replace shipped ones of
// the same name, and are as those where they say nothing. Another provider that names no
// endpoints speaks what OpenAI's clients do.
func New(more []Provider) (*Table, error) {
	t := &Table{}
	var own []Provider
	if err := strictjson.Unmarshal(shipped, &own); err != nil {
		return nil, fmt.Errorf("reading the shipped providers: %w", err)
	}
	for _, p := range append(own, more...) {
		u, err := weburl.Parse(p.URL)
		if err != nil || u.HasQuery || p.Name == "" || strings.ContainsAny(p.Name, "/ ") {
			return nil, fmt.Errorf("provider %q: its name or its address %q cannot be used", p.Name, p.URL)
		}
		p.at = u
		if i := slices.IndexFunc(own, func(q Provider) bool { return q.Name == p.Name }); i >= 0 {
			p = p.like(own[i])
		}
		if len(p.Endpoints) == 0 {
			p.Endpoints = []Endpoint{
				{Method: "POST", Path: "/chat/completions", Wire: Chat},
				{Method: "POST", Path: "/responses", Wire: Responses},
				{Method: "GET", Path: "/models"},
				{Method: "GET", Path: "/models/*"},
			}
		}
		if len(p.Keys) == 0 {
			p.Keys = []string{"Authorization"}
		}
		t.all = slices.DeleteFunc(t.all, func(q Provider) bool { return q.Name == p.Name })
		t.all = append(t.all, p)
	}
	return t, nil
}

// like returns p with what it does not say as q says it.
func (p Provider) like(q Provider) Provider {
	if len(p.Endpoints) == 0 {
		p.Endpoints = q.Endpoints
	}
	if len(p.Keys) == 0 {
		p.Keys, p.Query = q.Keys, cmp.Or(p.Query, q.Query)
	}
	if len(p.Variables) == 0 {
		p.Variables = q.Variables
	}
	return p
}

// All returns the providers.
func (t *Table) All() []Provider { return slices.Clone(t.all) }

// Hosts returns where the providers are.
func (t *Table) Hosts() (all []weburl.Host) {
	if t == nil {
		return nil
	}
	for _, p := range t.all {
		if !slices.Contains(all, p.at.Host) {
			all = append(all, p.at.Host)
		}
	}
	return all
}

// Host reports whether some provider is at host, so that what is said to it has to be seen.
func (t *Table) Host(host weburl.Host) bool {
	return t != nil && slices.ContainsFunc(t.all, func(p Provider) bool { return p.at.Host == host })
}

// Find returns the provider at u. Several can share a host: the longest address wins.
func (t *Table) Find(u weburl.URL) (best Provider, ok bool) {
	if t == nil {
		return Provider{}, false
	}
	for _, p := range t.all {
		if _, in := p.below(u); in && (!ok || len(p.at.Path) > len(best.at.Path)) {
			best, ok = p, true
		}
	}
	return best, ok
}

// below is the path of u below p's address.
func (p Provider) below(u weburl.URL) (string, bool) {
	if u.Scheme != p.at.Scheme || u.Host != p.at.Host || u.Port != p.at.Port {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(p.at.Path, "/"))
	return rest, ok && strings.HasPrefix(rest, "/")
}

// Endpoint returns what a request asks of p; ok is false for what is not in its list.
// Paths are compared as they go over the wire: another spelling is another path.
func (p Provider) Endpoint(method string, u weburl.URL) (Endpoint, bool) {
	path, ok := p.below(u)
	if !ok {
		return Endpoint{}, false
	}
	for _, e := range p.Endpoints {
		if e.Method == method && matches(e.Path, path) && (e.Quiet || p.parameters(u.Query)) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// parameters are those that a query may have: they choose a form or a page. Others could
// hold a credential, or ask for another form of answer than is metered.
var parameters = []string{"beta", "api-version", "limit", "order", "after", "after_id", "before_id", "pageSize", "pageToken", "prettyPrint"}

// parameters reports whether a query has none but those, and what holds the credential.
func (p Provider) parameters(query string) bool {
	for one := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(one, "=")
		switch {
		case name == "alt" && (value == "sse" || value == "json"):
		case p.Query != "" && name == p.Query:
		case !slices.Contains(parameters, name):
			return false
		}
	}
	return true
}

// matches reports whether path is the pattern's, where "*" is one or more letters of a
// segment without escapes.
func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		before, after, any := strings.Cut(w, "*")
		switch {
		case !any && w != got[i]:
			return false
		case any && (len(got[i]) <= len(before)+len(after) || !strings.HasPrefix(got[i], before) ||
			!strings.HasSuffix(got[i], after) || strings.Contains(got[i], "%")):
			return false
		}
	}
	return true
}

// Model is the canonical text of a model of p, "anthropic/claude-x". What asks no model,
// such as a list of them, is "anthropic/no-model", which "the models anthropic/*" covers.
func (p Provider) Model(model string) string {
	if model == "" {
		model = "no-model"
	}
	return p.Name + "/" + model
}

// Refusal is an answer in the form that clients of wire w understand: why nothing came.
func Refusal(w Wire, status int, why string) []byte {
	var body any
	switch w {
	case Messages:
		body = map[string]any{"type": "error", "error": map[string]any{"type": refusalType(status), "message": why}}
	case Google:
		body = map[string]any{"error": map[string]any{"code": status, "message": why, "status": "PERMISSION_DENIED"}}
	case Chat, Responses:
		code := "denied"
		if status == 402 || status == 429 {
			code = "insufficient_quota"
		}
		body = map[string]any{"error": map[string]any{"message": why, "type": refusalType(status), "code": code}}
	default:
		body = map[string]any{"error": why}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return []byte(`{"error":"denied"}`)
	}
	return raw
}

func refusalType(status int) string {
	switch status {
	case 400:
		return "invalid_request_error"
	case 402:
		return "billing_error"
	case 429:
		return "insufficient_quota"
	}
	return "permission_error"
}

// OverBudget is the status with which the service of wire w says that nothing is left to
// pay with. Its clients do not ask again then, as some do after any other refusal.
func OverBudget(w Wire) int {
	switch w {
	case Messages:
		return 402
	case Chat, Responses:
		return 429
	case Google:
	}
	return 403 // Google's clients wait for better times after 429
}
