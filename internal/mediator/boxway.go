package mediator

import (
	"context"
	"fmt"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
	"ringfence/internal/sandbox"
)

// network is what the box of s has of it, if program is what it runs. Our own servers,
// whose calls are decided address by address, and what fetches itself with no word about
// hosts have that of the machine, and the record says so.
func (b Boxes) network(s Server, program string) sandbox.Network {
	hosts := len(s.Ringfence.Hosts) > 0
	switch {
	case s.Ringfence.Network != "", s.Ringfence.Builtin == "fetch":
		return sandbox.NetworkOpen
	case hosts && s.Ringfence.Builtin == "" && b.Way != nil:
		return sandbox.NetworkPolicy
	case hosts, fetchesItself(program):
		return sandbox.NetworkOpen
	}
	return sandbox.NetworkNone
}

// secretPrefix begins the value of a variable that stands for a secret.
const secretPrefix = "secret:"

// SecretOf returns the name of the secret that stands in the value of a variable, if one
// does.
func SecretOf(value string) (name string, ok bool) { return strings.CutPrefix(value, secretPrefix) }

// wayOut is spec by way of what leads out of its box, if that is held. closed may always be
// called.
func (b Boxes) wayOut(ctx context.Context, s Server, spec sandbox.Spec, tier sandbox.Tier) (by sandbox.Spec, closed func() error, err error) {
	closed = func() error { return nil }
	if spec.Network == sandbox.NetworkPolicy && tier.Name() == sandbox.TierNone {
		spec.Network = sandbox.NetworkOpen // there is no box
	}
	if spec.Network == sandbox.NetworkPolicy {
		return b.Way(ctx, s, spec)
	}
	for _, kv := range spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		if secret, ok := SecretOf(value); ok {
			return spec, closed, fmt.Errorf("its variable %s is the secret %s, which is lent to a box with \"hosts\" alone", name, secret)
		}
	}
	return spec, closed, nil
}

// site is the text of a host, checked.
func (r *serversReader) site(m strictjson.Member) (string, error) {
	s, err := r.text(m)
	if err != nil {
		return "", err
	}
	if _, err := weburl.ParseSite(s); err != nil {
		return "", r.fail(m.Start, "%s: the host %s %w", clip(m.Name), clip(s), err)
	}
	return s, nil
}
