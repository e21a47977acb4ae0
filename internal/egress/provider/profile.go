package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
)

// A Profile has what is asked of one provider answered by another one. The zero Profile
// does nothing.
type Profile struct {
	Name string
	From string // the provider that the client believes it speaks to
	To   string // the one that answers
	// Models are those of To by the names that the client uses. A name with one "*" in it
	// stands for any text there; the name itself wins, then the longest that fits.
	Models map[string]string
	Secret string // the name of the secret that To gets; "": the one that is bound to its address
}

// StandIn is what clients of a provider that a profile stands for can have for a key. It
// opens nothing, and does not leave.
const StandIn = "sk-stand-in-for-a-profile"

// Check refuses a profile that can do nothing.
func (p Profile) Check(t *Table) error {
	to, known := t.Named(p.To)
	from, ok := t.Named(p.From)
	if !ok || !known {
		return fmt.Errorf("from %q and to %q must be providers; known are %s", p.From, p.To, strings.Join(t.names(), ", "))
	}
	if len(p.Models) == 0 {
		return errors.New(`it has no models: "models" says which model stands for which, as in {"*": "gpt-5"}`)
	}
	for name, model := range p.Models {
		if name == "" || strings.Count(name, "*") > 1 || model == "" || strings.ContainsAny(model, "* \t\n\x00") || len(model) > 200 {
			return fmt.Errorf("models: %q: %q: a name has one * at most, and stands for one model", name, model)
		}
	}
	if p.Secret != "" {
		if err := loan.CheckName(p.Secret); err != nil {
			return err
		}
	}
	for _, e := range from.Endpoints {
		if _, ok := to.answers(e.Wire); ok && !e.Counts {
			return nil
		}
	}
	return fmt.Errorf("nothing that %s is asked can be translated for %s", p.From, p.To)
}

// Model returns the model of To that stands for name.
func (p Profile) Model(name string) (model string, ok bool) {
	if model, ok = p.Models[name]; ok {
		return model, true
	}
	best := -1
	for pattern, one := range p.Models {
		before, after, any := strings.Cut(pattern, "*")
		if !any || len(name) < len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
			continue
		}
		if len(pattern) > best || len(pattern) == best && one < model {
			model, best = one, len(pattern)
		}
	}
	return model, best >= 0
}

// Named returns the provider of that name.
func (t *Table) Named(name string) (Provider, bool) {
	if t == nil {
		return Provider{}, false
	}
	for _, p := range t.all {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

func (t *Table) names() (all []string) {
	for _, p := range t.all {
		all = append(all, p.Name)
	}
	return all
}

// answers returns the endpoint of p for requests of wire w: one of that wire, else one
// that they can be translated for.
func (p Provider) answers(w Wire) (Endpoint, bool) {
	for _, want := range [][]Wire{{w}, translated[w]} {
		for _, e := range p.Endpoints {
			for _, one := range want {
				if e.Wire == one && one != "" && one != Google && e.Method == http.MethodPost && !e.Counts && !strings.Contains(e.Path, "*") {
					return e, true
				}
			}
		}
	}
	return Endpoint{}, false
}

// Answers returns where p is asked what came in wire w; ok is false where that cannot be
// translated.
func (p Provider) Answers(w Wire) (e Endpoint, u weburl.URL, ok bool) {
	if e, ok = p.answers(w); !ok {
		return e, u, false
	}
	u = p.at
	u.Path = strings.TrimSuffix(p.at.Path, "/") + e.Path
	return e, u, true
}
