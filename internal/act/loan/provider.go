package loan

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed providers.json
var providersJSON []byte

// A Provider is what is known of the keys of one provider of models.
type Provider struct {
	Name      string    `json:"name"`            // also the name of the secret
	Variables []string  `json:"variables"`       // of the environment that hold its key, the first of them first
	Shown     []string  `json:"shown,omitempty"` // others, which hold it where none of those does
	Prefixes  []string  `json:"prefixes"`        // of its keys
	Bindings  []Binding `json:"bindings"`
}

// Providers returns the providers whose keys are known, in the order of the file. Do not
// modify them.
var Providers = sync.OnceValue(func() []Provider {
	var ps []Provider
	if err := json.Unmarshal(providersJSON, &ps); err != nil {
		panic("loan: providers.json: " + err.Error()) // compiled in, and tested
	}
	return ps
})

// ProviderOf returns the provider whose host that is.
func ProviderOf(host string) (Provider, bool) {
	for _, p := range Providers() {
		if slices.ContainsFunc(p.Bindings, func(b Binding) bool { return b.Host == host }) {
			return p, true
		}
	}
	return Provider{}, false
}

// minForeign is the length from which a credential is one that a provider would accept,
// whatever it begins with. What stands in examples is shorter.
const minForeign = 20

// Foreign reports whether a credential for a provider looks as if it could be somebody's
// key. It says yes too often rather than too rarely: who has no business with keys of
// others has the sentinel to send.
func (p Provider) Foreign(credential string) bool {
	if len(credential) < minForeign {
		return false
	}
	for _, prefix := range p.Prefixes {
		if strings.HasPrefix(credential, prefix) {
			return true
		}
	}
	return alphabetSize(credential) > 8
}

func alphabetSize(s string) int {
	seen := map[rune]bool{}
	for _, r := range s {
		seen[r] = true
	}
	return len(seen)
}

// An Own is a secret that a client hands to the engine for one session.
type Own struct {
	Name     string    `json:"name"`
	Value    []byte    `json:"value"`
	Env      []string  `json:"env,omitempty"`
	Bindings []Binding `json:"bindings,omitempty"`
}

// FromVariables returns the keys of providers that variables hold, as lookup has them.
func FromVariables(all []Provider, lookup func(name string) (value string, ok bool)) []Own {
	var out []Own
	for _, p := range all {
		names := slices.Concat(p.Variables, p.Shown)
		for _, v := range names {
			value, ok := lookup(v)
			if value = strings.TrimSpace(value); !ok || value == "" {
				continue
			}
			out = append(out, Own{Name: p.Name, Value: []byte(value), Env: names, Bindings: p.Bindings})
			break
		}
	}
	return out
}

// Bounds of a file of variables.
const (
	maxDotEnv      = 64 << 10
	maxDotEnvLines = 1024
)

// DotEnv reads a file of variables, as such files are usually written: NAME=VALUE lines,
// "export" before it, comments with #, and values in quotes; in double quotes \n, \r, \t,
// \\, \" and \$ are escapes. No variable is put in for another. The error names the line
// and never its text.
func DotEnv(text []byte) (map[string]string, error) {
	if len(text) > maxDotEnv {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(text), maxDotEnv)
	}
	out := map[string]string{}
	for i, line := range strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		if i >= maxDotEnvLines {
			return nil, fmt.Errorf("line %d: at most %d lines are read", i+1, maxDotEnvLines)
		}
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if after, ok := strings.CutPrefix(line, "export"); ok && after != "" && (after[0] == ' ' || after[0] == '\t') {
			line = strings.TrimSpace(after)
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || !envForm().MatchString(name) {
			return nil, fmt.Errorf("line %d: it is not NAME=VALUE", i+1)
		}
		value, err := dotValue(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		out[name] = value
	}
	return out, nil
}

var dotEscapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '\\': '\\', '"': '"', '$': '$'}

// dotValue reads what stands behind the equals sign.
func dotValue(v string) (string, error) {
	if v == "" || v[0] != '"' && v[0] != '\'' {
		if i := strings.Index(v, " #"); i >= 0 {
			v = strings.TrimSpace(v[:i])
		}
		return v, nil
	}
	quote := v[0]
	var out strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == quote:
			if rest := strings.TrimSpace(v[i+1:]); rest != "" && rest[0] != '#' {
				return "", fmt.Errorf("there is text after the quoted value")
			}
			return out.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(v) && dotEscapes[v[i+1]] != 0:
			i++
			out.WriteByte(dotEscapes[v[i]])
		default:
			out.WriteByte(c)
		}
	}
	return "", fmt.Errorf("the quoted value does not end on its line")
}
