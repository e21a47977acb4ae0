package mediator

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/inspect"
)

// Bounds of one secret that package inspect looks for, in bytes.
const (
	leastSecret = 8
	mostSecret  = 16 << 10
)

// named reports whether a header or variable of that name may carry a secret.
func named(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// public are variables whose values are in many texts and known to whoever runs here.
var public = []string{
	"COLORTERM", "DISPLAY", "EDITOR", "HOME", "HOST", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "MAIL", "NODE_ENV", "OLDPWD", "PATH", "PWD",
	"SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER", "USERNAME", "VIRTUAL_ENV",
}

// secret keeps value as one that no agent is to read back: by the name of its header or
// variable if literal says that it stands in the entry, and else unless it is a path or
// a variable that is no secret. Values of less than 8 bytes occur by chance.
func (r *serversReader) secret(name, value string, literal bool) {
	open := strings.HasPrefix(value, "/") || slices.Contains(public, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
	if !named(name) && (literal || open) {
		return
	}
	label := strings.Map(func(c rune) rune {
		if c < 0x80 && isWord(byte(c)) {
			return c
		}
		return '-'
	}, name[:min(len(name), 64)])
	for part := range slices.Chunk([]byte(value), mostSecret) {
		if len(part) >= leastSecret {
			r.secrets = append(r.secrets, inspect.Secret{Name: strings.ToLower(label), Value: part})
		}
	}
}

// secretsOf returns what finds the secrets of all entries: one server may read what
// another was given.
func secretsOf(servers []Server) (*inspect.Inspector, error) {
	var all []inspect.Secret
	for _, s := range servers {
		all = append(all, s.secrets...)
	}
	in, err := inspect.New(all)
	if err != nil {
		return nil, fmt.Errorf("the secrets of servers: %w", err)
	}
	return in, nil
}

// scrubbed returns a text or a line of the server without the secrets of any entry.
func (s Server) scrubbed(text []byte) []byte {
	if s.known == nil {
		return text
	}
	return s.known.Scrub(text)
}
