package external

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// Values are what stands for the placeholders of an adapter.
type Values struct {
	Home      string // of the person, at which the private one stands in the box
	Workspace string
	URL       string // of our MCP server, in the box
	Token     string // that it wants
	Key       string // what stands for the provider's key in the box, "" if there is none
	ID        string // of the conversation that is resumed
	Hook      string // the command, as a shell reads it, that is asked before each use of a tool, "" if there is none
}

// keyEnd is how many characters Claude Code knows a key by that a person accepted.
const keyEnd = 20

func (v Values) fill(s string) string {
	s = strings.NewReplacer("${WORKSPACE}", v.Workspace, "${URL}", v.URL, "${TOKEN}", v.Token, "${KEY}", v.Key, "${KEY_END}", v.Key[max(0, len(v.Key)-keyEnd):], "${ID}", v.ID, "${HOOK}", v.Hook).Replace(s)
	if rest, ok := strings.CutPrefix(s, "~/"); ok {
		return path.Join(v.Home, rest)
	}
	return s
}

// Argv returns the arguments of the agent: ours, then those that the person typed. id is
// the conversation that is resumed, "" for none, and "last" for the last one.
func (a Adapter) Argv(v Values, toolsOnly bool, typed []string) []string {
	var all []string
	add := func(more []string) {
		for _, m := range more {
			all = append(all, v.fill(m))
		}
	}
	if a.Plain(typed) {
		return typed
	}
	first := func(of []string) bool { return len(typed) > 0 && slices.Contains(of, typed[0]) }
	// Where the way it works is a command and not an option, options of it come after.
	command := first(a.Arguments.OneShot) && !strings.HasPrefix(typed[0], "-")
	if command {
		all, typed = append(all, typed[0]), typed[1:]
	}
	if !toolsOnly || !a.Arguments.ToolsOnlyInstead {
		add(a.Arguments.Always)
	}
	if toolsOnly {
		add(a.Arguments.ToolsOnly)
	}
	if v.Hook != "" {
		add(a.Arguments.Hooks)
	}
	add(a.going(v.ID, command))
	return append(all, typed...)
}

// going are the arguments by which it goes on with a conversation.
func (a Adapter) going(id string, command bool) []string {
	last, one := a.Arguments.Continue, a.Arguments.Resume
	if command && a.Arguments.OneShotContinue != nil {
		last, one = a.Arguments.OneShotContinue, a.Arguments.OneShotResume
	}
	switch id {
	case "":
		return nil
	case "last":
		return last
	}
	return one
}

// Transcribed is what the person typed, with what has the agent say each step in JSON, for
// [Adapter.Steps]; false if what he typed is not one-shot.
func (a Adapter) Transcribed(typed []string) ([]string, bool) {
	if !a.OneShot(typed) {
		return typed, false
	}
	if strings.HasPrefix(typed[0], "-") {
		return slices.Concat(a.Arguments.Transcript, typed), true
	}
	return slices.Concat(typed[:1], a.Arguments.Transcript, typed[1:]), true
}

// Plain reports whether the agent does nothing but tell of itself, or change its settings.
func (a Adapter) Plain(typed []string) bool {
	return len(typed) > 0 && slices.Contains(a.Arguments.Plain, typed[0])
}

// OneShot reports whether what the person typed has the agent work without a terminal.
func (a Adapter) OneShot(typed []string) bool {
	for i, t := range typed {
		if t == "--" {
			return false // what follows is a question
		}
		if (i == 0 || strings.HasPrefix(t, "-")) && slices.Contains(a.Arguments.OneShot, t) {
			return true
		}
	}
	return false
}

// Make returns what the file f holds for the next start: own is what it holds in the
// private home, nil if there is none, and theirs what it holds in the person's, of which
// the members that f keeps are taken over where own has none. A file that cannot be
// read is as if there were none: it is a convenience, and what must be set is.
func (f File) Make(own, theirs []byte, v Values, toolsOnly bool) ([]byte, error) {
	all, kept := f.read(own), f.read(theirs)
	for _, name := range f.Keep {
		if value, ok := kept[name]; ok && all[name] == nil {
			if value = scrubbed(value); value != nil {
				all[name] = value
			}
		}
	}
	if err := f.forget(all, v); err != nil {
		return nil, err
	}
	sets := []json.RawMessage{f.Set}
	if toolsOnly {
		sets = append(sets, f.ToolsOnly)
	}
	if v.Hook != "" {
		sets = append(sets, f.Hooks)
	}
	for i, set := range sets {
		if len(set) == 0 {
			continue
		}
		var tree map[string]any
		if err := json.Unmarshal(set, &tree); err != nil {
			return nil, fmt.Errorf("reading what %s is to hold: %w", f.Path, err)
		}
		next := filled(tree, v).(map[string]any) //nolint:forcetypeassert // of a map
		for name := range next {
			if i == 0 && serverLists[name] {
				delete(all, name)
			}
		}
		merge(all, next)
	}
	return f.write(all)
}

// forget takes out of all what a start with other options has set.
func (f File) forget(all map[string]any, v Values) error {
	for _, set := range []json.RawMessage{f.ToolsOnly, f.Hooks} {
		if len(set) == 0 {
			continue
		}
		var tree map[string]any
		if err := json.Unmarshal(set, &tree); err != nil {
			return fmt.Errorf("reading what %s is to hold: %w", f.Path, err)
		}
		if next, ok := filled(tree, v).(map[string]any); ok {
			drop(all, next)
		}
	}
	return nil
}

// drop takes the members of from out of to, object by object.
func drop(to, from map[string]any) {
	for name, value := range from {
		mine, both := value.(map[string]any)
		theirs, ok := to[name].(map[string]any)
		if both && ok {
			drop(theirs, mine)
			if len(theirs) > 0 {
				continue
			}
		}
		delete(to, name)
	}
}

// read returns what a file holds, nothing if it is none.
func (f File) read(data []byte) map[string]any {
	all := map[string]any{}
	if len(bytes.TrimSpace(data)) == 0 || len(data) > maxFile || f.Form == "toml" && tooDeep(data, true) {
		return all
	}
	var err error
	if f.Form == "toml" {
		err = toml.Unmarshal(data, &all)
	} else {
		var plain []byte
		if plain, err = standard(data); err == nil {
			err = json.Unmarshal(plain, &all)
		}
	}
	if err != nil || all == nil {
		return map[string]any{}
	}
	return all
}

func (f File) write(all map[string]any) ([]byte, error) {
	var b bytes.Buffer
	if f.Form == "toml" {
		if err := toml.NewEncoder(&b).Encode(all); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.Path, err)
		}
		return b.Bytes(), nil
	}
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(all); err != nil {
		return nil, fmt.Errorf("writing %s: %w", f.Path, err)
	}
	return b.Bytes(), nil
}

// filled returns v with the placeholders of tree replaced, in names too. A list loses what
// is empty then.
func filled(tree any, v Values) any {
	switch t := tree.(type) {
	case string:
		return v.fill(t)
	case map[string]any:
		next := make(map[string]any, len(t))
		for name, value := range t {
			next[v.fill(name)] = filled(value, v)
		}
		return next
	case []any:
		next := []any{}
		for _, value := range t {
			if value = filled(value, v); value != "" {
				next = append(next, value)
			}
		}
		return next
	case float64:
		if t == float64(int64(t)) {
			return int64(t) // TOML tells the two apart
		}
	}
	return tree
}

// merge puts the members of from into to, object by object.
func merge(to, from map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		mine, both := from[name].(map[string]any)
		theirs, ok := to[name].(map[string]any)
		if both && ok {
			merge(theirs, mine)
			continue
		}
		to[name] = from[name]
	}
}

// serverLists are the members that list servers of MCP. Of these nothing stays but what we
// say: the others would not start in a box, or pass us by.
var serverLists = map[string]bool{"mcpServers": true, "mcp_servers": true, "mcp": true, "extensions": true}

// secretNames are parts of names of members that hold keys or tokens, secretWords whole names:
// in lower case, letters only.
var (
	secretNames = []string{"apikey", "accesskey", "privatekey", "token", "secret", "passw", "passphrase", "authorization", "bearer", "cookie", "header", "credential", "queryparam"}
	secretWords = []string{"key", "auth", "pat", "jwt", "args"}
)

// secretText is what keys and tokens of services look like, wherever they stand.
var secretText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(?:[spr]k[-_][\w-]{12,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{12,}|AIza[\w-]{30,}|xox[a-z]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.)|(?i:bearer|basic)\s+\S{8,}`)
})

// secretName reports whether a member of that name may hold a key.
func secretName(name string) bool {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	return slices.Contains(secretWords, letters) || slices.ContainsFunc(secretNames, func(s string) bool { return strings.Contains(letters, s) })
}

// scrubbed returns what is taken over of a value: no key. nil is nothing.
func scrubbed(value any) any {
	switch t := value.(type) {
	case map[string]any:
		next := make(map[string]any, len(t))
		for name, v := range t {
			switch v.(type) {
			case bool, float64, int64:
			default:
				if v = scrubbed(v); v == nil || secretName(name) {
					continue
				}
			}
			next[name] = v
		}
		return next
	case []map[string]any: // a list of tables of TOML
		next := []any{}
		for _, v := range t {
			next = append(next, scrubbed(v))
		}
		return next
	case []any:
		next := []any{}
		for _, v := range t {
			if v = scrubbed(v); v != nil {
				next = append(next, v)
			}
		}
		return next
	case string:
		if secretText().MatchString(t) {
			return nil
		}
		if strings.Contains(t, "://") {
			return scrubbedURL(t)
		}
	}
	return value
}

// scrubbedURL is an address without who asks and with what.
func scrubbedURL(text string) any {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return text
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
