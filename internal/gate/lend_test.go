package gate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// lending lends "key" for requests to https://a.org/.
type lending struct{ locked bool }

func (lending) Bound(secret, method, url string) error {
	if secret != "key" || !strings.HasPrefix(url, "https://a.org/") || method == "DELETE" {
		return errors.New("it is bound to https://a.org/")
	}
	return nil
}

func (l lending) Lend(secret string) (act.Loan, error) {
	if l.locked {
		return act.Loan{}, errors.New("the vault is locked")
	}
	return act.Loan{Name: secret, Sentinel: "stand-in", Value: "value"}, nil
}

// TestLend: a secret is lent for the one request that it is bound to, once allowed.
func TestLend(t *testing.T) {
	type effect = act.Effect
	of := func(k act.Kind, text string) effect { return effect{Kind: k, Resource: act.Resource{Text: text}} }
	fetch, key := of(act.Fetch, "https://a.org/x"), of(act.UseSecret, "key")
	const get = `{"method":"GET"}`
	for _, c := range []struct {
		name    string
		args    string
		effects []effect
		lend    Lender
		code    act.Code
	}{
		{"lent", get, []effect{fetch, key}, lending{}, ""},
		{"lent once", get, []effect{fetch, key, key}, lending{}, ""},
		{"sent", `{"method":"POST"}`, []effect{of(act.Send, "https://a.org/x"), key}, lending{}, ""},
		{"to another host", get, []effect{of(act.Fetch, "https://b.org/x"), key}, lending{}, act.CodePolicy},
		{"another secret", get, []effect{fetch, of(act.UseSecret, "other")}, lending{}, act.CodePolicy},
		{"another method", `{"method":"DELETE"}`, []effect{of(act.Send, "https://a.org/x"), key}, lending{}, act.CodePolicy},
		{"a method that is none of a fetch", `{"method":"POST"}`, []effect{fetch, key}, lending{}, act.CodeInvalid},
		{"a fetch said to be a send", get, []effect{of(act.Send, "https://a.org/x"), key}, lending{}, act.CodeInvalid},
		{"without a method", `{}`, []effect{fetch, key}, lending{}, act.CodeInvalid},
		{"a method that is no text", `{"method":1}`, []effect{fetch, key}, lending{}, act.CodeInvalid},
		{"without a request", get, []effect{key}, lending{}, act.CodeInvalid},
		{"with two", get, []effect{fetch, of(act.Fetch, "https://a.org/y"), key}, lending{}, act.CodeInvalid},
		{"where nothing is lent", get, []effect{fetch, key}, nil, act.CodeInvalid},
		{"a vault that is locked", get, []effect{fetch, key}, lending{locked: true}, act.CodeInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var implied []bool
			b := newBench(t, func(q policy.Query) policy.Decision {
				for _, e := range q.Effects {
					implied = append(implied, e.Implied)
				}
				return policy.Decision{Verdict: act.Allow}
			})
			b.run.Lend = c.lend
			got := b.decide(act.Request{Verb: act.VerbEffect, Args: []byte(c.args), Direct: c.effects})
			if got.Code != c.code || (got.Verdict == act.Allow) != (c.code == "") {
				t.Fatalf("%+v", got)
			}
			if c.code != "" {
				if len(got.Lend) > 0 {
					t.Errorf("a denial lends %d secrets", len(got.Lend))
				}
				return
			}
			if want := []act.Loan{{Name: "key", Sentinel: "stand-in", Value: "value"}}; !slices.Equal(got.Lend, want) || implied[0] || !implied[1] {
				t.Errorf("lent %+v, implied %v", got.Lend, implied)
			}
			for _, e := range b.record.entries {
				if strings.Contains(string(e.Body), `"value"`) {
					t.Errorf("the value is on record: %s", e.Body)
				}
			}
		})
	}
}
