package gate

import (
	"errors"
	"fmt"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// A request over the network can use a secret that its owner bound to a place. That
// binding is the permission, so the use is implied by the fetch or send beside it; what
// a clause forbids or asks about holds.

// A Lender lends the secrets of one session.
type Lender interface {
	// Bound returns why a request with that method to url, as weburl writes it, may not
	// carry the secret; nil if it may.
	Bound(secret, method, url string) error
	// Lend returns the secret. Whoever gets it puts it into that one request.
	Lend(secret string) (act.Loan, error)
}

// vouch makes the fetch or send, by which a package is installed or a model asked, implied
// by that: a sentence about packages or models is the permission, and one that forbids
// the host, or asks about it, holds.
func (d *draft) vouch() {
	if d.req.Verb != act.VerbEffect || !slices.ContainsFunc(d.res.Effects, func(e act.Effect) bool { return e.Kind == act.Install || e.Kind == act.Infer }) {
		return
	}
	for i := range d.res.Effects {
		if k := d.res.Effects[i].Kind; k == act.Fetch || k == act.Send {
			d.res.Effects[i].Implied = true
		}
	}
}

// lends holds the secrets that d names against their bindings.
func (d *draft) lends() *refusal {
	var secrets []int
	var request *act.Effect
	requests := 0
	for i, e := range d.res.Effects {
		if e.Kind == act.UseSecret {
			secrets = append(secrets, i)
		}
		if e.Kind == act.Fetch || e.Kind == act.Send {
			request = &d.res.Effects[i]
			requests++
		}
	}
	if len(secrets) == 0 {
		return nil
	}
	if requests != 1 || d.run.Lend == nil {
		return refuse(act.CodeInvalid, "a secret goes out with one request to one address, and this is none")
	}
	method, err := methodOf(d.req.Args, request.Kind)
	if err != nil {
		return refuse(act.CodeInvalid, "%v", err)
	}
	for _, i := range secrets {
		e := &d.res.Effects[i]
		if err := d.run.Lend.Bound(e.Resource.Text, method, request.Resource.Text); err != nil {
			return &refusal{code: act.CodePolicy, rules: []string{unbound}, reason: fmt.Sprintf("the secret %s is not lent for this request: %v", e.Resource.Text, err)}
		}
		e.Implied = true
	}
	return nil
}

// unbound is the rule that a denial names where no binding covers a request.
const unbound = "bound-secrets"

// methodOf returns the method that args name, if it is one of kind.
func methodOf(args []byte, kind act.Kind) (string, error) {
	v, found, err := strictjson.Find(args, "/method")
	if err != nil || !found {
		return "", errors.New("a request that uses a secret must say its method")
	}
	method, err := strictjson.Text(v.Raw)
	if err != nil {
		return "", fmt.Errorf("reading the method: %w", err)
	}
	if observing := method == "GET" || method == "HEAD"; observing != (kind == act.Fetch) {
		return "", fmt.Errorf("the method %q is not that of a %s", method, kind)
	}
	return method, nil
}

// loans returns what d, which is allowed, is lent.
func (d *draft) loans() ([]act.Loan, *refusal) {
	if d.req.Verb != act.VerbEffect || d.run == nil || d.run.Lend == nil {
		return nil, nil
	}
	var out []act.Loan
	for _, e := range d.res.Effects {
		if e.Kind != act.UseSecret || slices.ContainsFunc(out, func(l act.Loan) bool { return l.Name == e.Resource.Text }) {
			continue
		}
		l, err := d.run.Lend.Lend(e.Resource.Text)
		if err != nil {
			return nil, refuse(act.CodeInternal, "the secret %s cannot be lent: %v", e.Resource.Text, err)
		}
		out = append(out, l)
	}
	return out, nil
}
