package mediator

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/inspect"
	"ringfence/internal/sandbox"
)

// A Server is one entry of a servers file.
type Server struct {
	Name      string // see [CheckName]
	Command   string // as written; of Command, URL and Ringfence.Builtin exactly one is set
	Args      []string
	Env       map[string]string // what the server gets beside the box's own
	Cwd       string            // as written; "" leaves it to the Starter
	URL       string            `json:",omitempty"` // of a server that is reached over HTTP
	Type      Transport         `json:",omitempty"` // of a server with a URL
	Headers   map[string]string `json:"-"`          // of each request to it, variables expanded; canonical names
	Ringfence Settings
	Written   Written

	places  map[string]string // see [Server.Place]
	secrets []inspect.Secret  // what of this entry an agent must not read back
	known   *inspect.Inspector
}

// Place is where "command", "builtin", "annotations" or "paths" stands in the file that the entry
// is from, as line:column, or "1:1" in none.
func (s Server) Place(key string) string {
	if p := s.places[key]; p != "" {
		return p
	}
	return "1:1"
}

func (s *Server) stands(key, at string) {
	if s.places == nil {
		s.places = map[string]string{}
	}
	s.places[key] = at
}

// Written is what an entry says before variables were expanded; zero in a Server
// that comes from no file.
type Written struct {
	Command string
	Args    []string
	URL     string `json:",omitempty"`
}

// Settings is the member "ringfence" of an entry, which only we read. The zero
// value asks for the tightest box and the annotations of the command.
type Settings struct {
	Annotations string        // name of the shipped annotations; "" goes by the command
	Builtin     string        // name of a server of our own that is run instead of a command
	Paths       []string      // what the server may reach beside the workspace, as written
	Hosts       []string      // what its network may reach, as written; weburl.ParseSite reads them
	Network     string        `json:",omitempty"` // "open": that of the machine, which nothing holds
	Unboxed     bool          // no box at all
	Timeout     time.Duration // of one call; 0 means the mediator's
	Socket      string        `json:",omitempty"` // of a server with a URL: the Unix socket that leads to it, as written
	Quota       Quota         `json:",omitzero"`
	OAuth       OAuth         `json:",omitzero"` // of a server with a URL

	// Of the built-in server "exec" only: what its commands may do with the workspace,
	// "" or "ro", or "rw", and what limits they have, "" for those that go with it.
	Workspace sandbox.Mode    `json:",omitempty"`
	Profile   sandbox.Profile `json:",omitempty"`
}

// Bounds of a servers file.
const (
	maxFile    = 1 << 20 // bytes
	maxServers = 64
	maxName    = 40 // bytes
)

var (
	entryKeys     = []string{"command", "args", "env", "cwd", "type", "url", "headers", "disabled", "description", "ringfence"}
	ringfenceKeys = []string{"annotations", "builtin", "paths", "hosts", "network", "unboxed", "timeout", "socket", "quota", "oauth", "workspace", "profile"}
)

// CheckName returns an error unless name can be that of a server: a letter or
// digit, then letters, digits, "-" and "_", at most 40, without "__" and without
// "_" at the end. So "server__tool" and "server.tool" each have one reading.
func CheckName(name string) error {
	good := strings.Map(func(r rune) rune {
		if r < 0x80 && (isWord(byte(r)) || r == '-') {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(good, "__") {
		good = strings.ReplaceAll(good, "__", "_")
	}
	good = strings.TrimRight(strings.TrimLeft(good[:min(len(good), maxName)], "-_"), "_")
	switch {
	case name == "":
		return fmt.Errorf("a server has no name")
	case good == "":
		return fmt.Errorf("%s cannot be the name of a server", clip(name))
	case good != name:
		return fmt.Errorf("%s cannot be the name of a server; %q can", clip(name), good)
	}
	return nil
}

// ParseServers reads the JSON in which MCP clients list their servers. It
// returns the servers in the order of the file, without those that are disabled,
// and warnings about what was ignored. Errors and warnings begin with
// line:column.
//
// In command, args, env and cwd, ${NAME} and ${NAME:-default} stand for
// variables of the environment, which lookup returns. With a nil lookup they are
// errors.
func ParseServers(src []byte, lookup func(name string) (string, bool)) ([]Server, []string, error) {
	r := &serversReader{src: src, lookup: lookup}
	top, err := r.members(span{0, len(src)}, "the file")
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(top, func(m strictjson.Member) bool { return m.Name == "mcpServers" })
	if i < 0 {
		for _, m := range top {
			if strictjson.Nearest(m.Name, []string{"mcpServers"}) != "" || m.Name == "servers" {
				return nil, nil, r.fail(m.At, `unknown key %s; did you mean "mcpServers"?`, clip(m.Name))
			}
		}
		return nil, nil, r.fail(0, `the key "mcpServers" is missing`)
	}
	entries, err := r.members(span{top[i].Start, top[i].End}, `"mcpServers"`)
	if err != nil {
		return nil, nil, err
	}
	var servers []Server
	for _, e := range entries {
		s, on, err := r.entry(e)
		if err != nil {
			return nil, nil, err
		}
		if on {
			servers = append(servers, s)
		}
	}
	if len(servers) > maxServers {
		return nil, nil, r.fail(top[i].At, "%d servers, at most %d", len(servers), maxServers)
	}
	return servers, r.warnings, nil
}

type serversReader struct {
	src      []byte
	lookup   func(string) (string, bool)
	warnings []string
	secrets  []inspect.Secret // of the entry that is read
}

// place is "line:column" of an offset, both from 1.
func (r *serversReader) place(at int) string {
	before := r.src[:min(at, len(r.src))]
	return fmt.Sprintf("%d:%d", 1+bytes.Count(before, []byte{'\n'}), len(before)-bytes.LastIndexByte(before, '\n'))
}

func (r *serversReader) fail(at int, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{r.place(at)}, args...)...)
}

func (r *serversReader) warn(at int, format string, args ...any) {
	r.warnings = append(r.warnings, r.fail(at, format, args...).Error())
}

// members returns the members of the object at s, placed in the file.
func (r *serversReader) members(s span, what string) ([]strictjson.Member, error) {
	raw := r.src[s.start:s.end]
	if err := strictjson.CheckLimits(raw, strictjson.Limits{Size: maxFile}); err != nil {
		return nil, r.strict(s.start, err)
	}
	members, err := strictjson.Members(raw, strictjson.Limits{Size: maxFile})
	if err != nil {
		return nil, r.fail(s.start, "%s must be an object", what)
	}
	for i := range members {
		members[i].At += s.start
		members[i].Start += s.start
		members[i].End += s.start
	}
	return members, nil
}

// strict places an error of package strictjson in the file.
func (r *serversReader) strict(start int, err error) error {
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		text := e.Err.Error()
		if e.Detail != "" {
			text += ": " + e.Detail
		}
		return r.fail(start+e.Offset, "%s", text)
	}
	return r.fail(start, "%w", err)
}

// entry reads one server and reports whether it is enabled.
func (r *serversReader) entry(e strictjson.Member) (Server, bool, error) {
	s := Server{Name: e.Name}
	if err := CheckName(e.Name); err != nil {
		return s, false, r.fail(e.At, "%w", err)
	}
	members, err := r.members(span{e.Start, e.End}, fmt.Sprintf("server %q", e.Name))
	if err != nil {
		return s, false, err
	}
	for _, m := range members {
		if m.Name != "disabled" {
			continue
		}
		if off, err := r.boolean(m); err != nil || off {
			return s, false, err
		}
	}
	r.secrets = nil
	for _, m := range members {
		if err := r.member(&s, m); err != nil {
			return s, false, err
		}
	}
	s.secrets = r.secrets
	return s, true, r.consistent(s, e, members)
}

// consistent returns an error unless the parts of an entry go together.
func (r *serversReader) consistent(s Server, e strictjson.Member, members []strictjson.Member) error {
	const none = `server %q has neither "command" nor "url" nor "ringfence": {"builtin": …}`
	kinds := 0
	for _, is := range []bool{s.Command != "", s.URL != "", s.Ringfence.Builtin != ""} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		for _, m := range members {
			if near := strictjson.Nearest(m.Name, []string{"command", "url", "ringfence"}); near != "" && !slices.Contains(entryKeys, m.Name) || m.Name == "cmd" {
				return r.fail(m.At, none+`; did you mean %q by %s?`, s.Name, cmp.Or(near, "command"), clip(m.Name))
			}
		}
		return r.fail(e.At, none, s.Name)
	case kinds > 1:
		return r.fail(e.At, `server %q has more than one of "command", "url" and "builtin"`, s.Name)
	case s.Ringfence.Builtin != builtinExec && (s.Ringfence.Workspace != "" || s.Ringfence.Profile != ""):
		return r.fail(e.At, `server %q: "workspace" and "profile" are only for "builtin": "exec"`, s.Name)
	}
	return r.remote(s, e)
}

func (r *serversReader) member(s *Server, m strictjson.Member) (err error) {
	switch m.Name {
	case "command":
		s.stands(m.Name, r.place(m.Start))
		if s.Command, err = r.expanded(m); err == nil {
			s.Written.Command, err = r.text(m)
		}
	case "args":
		if s.Args, err = r.list(m, r.expanded); err == nil {
			s.Written.Args, err = r.list(m, r.text)
		}
	case "env":
		s.Env, err = r.env(m)
	case "cwd":
		s.Cwd, err = r.expanded(m)
	case "type":
		s.Type, err = r.transport(s, m)
	case "url":
		if s.URL, err = r.expanded(m); err == nil {
			s.Written.URL, err = r.text(m)
		}
	case "headers":
		s.Headers, err = r.headers(m)
	case "description", "disabled":
	case "ringfence":
		var places map[string]string
		s.Ringfence, places, err = r.settings(m)
		for key, at := range places {
			s.stands(key, at)
		}
	default:
		hint := ""
		if near := strictjson.Nearest(m.Name, entryKeys); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		if slices.Contains(ringfenceKeys, m.Name) {
			hint = fmt.Sprintf(`; it belongs in "ringfence": {%q: …}`, m.Name)
		}
		r.warn(m.At, "server %q: unknown key %s is ignored%s", s.Name, clip(m.Name), hint)
	}
	return err
}

// settings returns the settings of an entry, and the place of each.
func (r *serversReader) settings(of strictjson.Member) (Settings, map[string]string, error) {
	var s Settings
	places := map[string]string{}
	members, err := r.members(span{of.Start, of.End}, `"ringfence"`)
	for _, m := range members {
		places[m.Name] = r.place(m.Start)
		switch m.Name {
		case "annotations":
			s.Annotations, err = r.text(m)
		case "builtin":
			s.Builtin, err = r.text(m)
		case "paths":
			s.Paths, err = r.list(m, r.expanded)
		case "hosts":
			s.Hosts, err = r.list(m, r.site)
		case "network":
			if s.Network, err = r.text(m); err == nil && s.Network != string(sandbox.NetworkOpen) {
				err = r.fail(m.Start, `%s can only be "open"`, clip(m.Name))
			}
		case "unboxed":
			s.Unboxed, err = r.boolean(m)
		case "timeout":
			s.Timeout, err = r.duration(m)
		case "socket":
			s.Socket, err = r.expanded(m)
		case "quota":
			s.Quota, err = r.quota(m)
		case "oauth":
			s.OAuth, err = r.oauth(m)
		case "workspace":
			s.Workspace, err = oneOf(r, m, sandbox.ReadOnly, sandbox.ReadWrite)
		case "profile":
			s.Profile, err = oneOf(r, m, sandbox.ProfileCommand, sandbox.ProfileAgent)
		default:
			near := strictjson.Nearest(m.Name, ringfenceKeys)
			if near != "" {
				return s, nil, r.fail(m.At, `unknown key %s in "ringfence"; did you mean %q?`, clip(m.Name), near)
			}
			return s, nil, r.fail(m.At, `unknown key %s in "ringfence"; there are %s`, clip(m.Name), strings.Join(ringfenceKeys, ", "))
		}
		if err != nil {
			return s, nil, err
		}
	}
	return s, places, err
}

func (r *serversReader) text(m strictjson.Member) (string, error) {
	s, err := strictjson.Text(r.src[m.Start:m.End])
	if err != nil {
		return "", r.fail(m.Start, "%s must be a string", clip(m.Name))
	}
	return s, nil
}

func oneOf[T ~string](r *serversReader, m strictjson.Member, a, b T) (T, error) {
	s, err := r.text(m)
	if err == nil && s != string(a) && s != string(b) {
		err = r.fail(m.Start, "%s can only be %q or %q", clip(m.Name), a, b)
	}
	return T(s), err
}

func (r *serversReader) boolean(m strictjson.Member) (bool, error) {
	switch string(r.src[m.Start:m.End]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, r.fail(m.Start, "%s must be true or false", clip(m.Name))
}

func (r *serversReader) duration(m strictjson.Member) (time.Duration, error) {
	text, err := r.text(m)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > 24*time.Hour {
		return 0, r.fail(m.Start, `%s must be a time between "1s" and "24h"`, clip(m.Name))
	}
	return d, nil
}

func (r *serversReader) list(of strictjson.Member, read func(strictjson.Member) (string, error)) ([]string, error) {
	if r.src[of.Start] != '[' {
		return nil, r.fail(of.Start, "%s must be an array of strings", clip(of.Name))
	}
	elements, err := strictjson.Values(r.src[of.Start:of.End], "/*")
	if err != nil {
		return nil, r.strict(of.Start, err)
	}
	out := make([]string, 0, len(elements))
	for _, e := range elements {
		s, err := read(strictjson.Member{Name: of.Name, Start: of.Start + e.Start, End: of.Start + e.End})
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (r *serversReader) env(of strictjson.Member) (map[string]string, error) {
	members, err := r.members(span{of.Start, of.End}, `"env"`)
	if err != nil {
		return nil, err
	}
	env := make(map[string]string, len(members))
	for _, m := range members {
		if m.Name == "" || strings.Contains(m.Name, "=") {
			return nil, r.fail(m.At, "%s cannot be the name of a variable", clip(m.Name))
		}
		if env[m.Name], err = r.expanded(m); err != nil {
			return nil, err
		}
		r.secret(m.Name, env[m.Name], true)
	}
	return env, nil
}

// expanded is text with its variables replaced, once: what a variable holds is
// not looked at again.
func (r *serversReader) expanded(m strictjson.Member) (string, error) {
	rest, err := r.text(m)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, behind, closed := strings.Cut(after, "}")
		if !closed {
			return "", r.fail(m.Start, "%s: ${ without }", clip(m.Name))
		}
		name, otherwise, hasDefault := strings.Cut(name, ":-")
		value, set := "", false
		if r.lookup != nil {
			value, set = r.lookup(name)
		}
		if !set && !hasDefault {
			return "", r.fail(m.Start, "%s: the variable %s is not set", clip(m.Name), clip(name))
		}
		if !set {
			value = otherwise
		}
		r.secret(name, value, false)
		b.WriteString(value)
		rest = behind
	}
}
