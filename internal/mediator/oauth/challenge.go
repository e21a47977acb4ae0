package oauth

import (
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// Bounds of WWW-Authenticate headers.
const (
	maxHeaders   = 8
	maxChallenge = 8 << 10
)

// A challenge is what a refused request was answered with.
type challenge struct {
	metadata string   // where the resource is described, "" if it does not say
	scopes   []string // that are wanted
	code     string   // why, RFC 6750, section 3.1
}

// readChallenge reads WWW-Authenticate headers, RFC 9110, section 11.6.1. Of several
// challenges the first counts that is for a bearer token, or one bound to a key.
func readChallenge(headers []string) (challenge, error) {
	var ch challenge
	total := 0
	for _, h := range headers {
		total += len(h)
	}
	if len(headers) > maxHeaders || total > maxChallenge {
		return ch, errors.New("its WWW-Authenticate header is too long")
	}
	all, err := oauthex.ParseWWWAuthenticate(headers)
	if err != nil {
		return ch, errors.New("its WWW-Authenticate header cannot be read") // err quotes it
	}
	for _, one := range all {
		if one.Scheme != "bearer" && one.Scheme != "dpop" {
			continue
		}
		if ch.metadata == "" {
			ch.metadata = one.Params["resource_metadata"]
		}
		if ch.code == "" {
			ch.code = word(one.Params["error"])
		}
		if ch.scopes == nil {
			if ch.scopes, err = readScopes(one.Params["scope"]); err != nil {
				return challenge{}, err
			}
		}
	}
	return ch, nil
}

// readScopes reads a list of scopes, RFC 6749, section 3.3; nil if there are none.
func readScopes(text string) ([]string, error) {
	if len(text) > maxChallenge {
		return nil, errors.New("it names too many scopes")
	}
	var all []string
	for s := range strings.FieldsSeq(text) {
		if !isScope(s) {
			return nil, errors.New("it names a scope that cannot be one")
		}
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) > maxScopes {
		return nil, errors.New("it names too many scopes")
	}
	return all, nil
}

func isScope(s string) bool {
	return s != "" && len(s) <= 256 && strings.IndexFunc(s, func(r rune) bool { return r <= 0x20 || r > 0x7e || r == '"' || r == '\\' }) < 0
}

// word returns s if it can be the code of an error, "" otherwise: what people and agents
// read is no text of a stranger.
func word(s string) string {
	if len(s) > 64 || strings.IndexFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }) >= 0 {
		return ""
	}
	return s
}

// union is a, and what of b is not in it.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
