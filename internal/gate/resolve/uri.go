package resolve

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// A uriSubject is what the URI of an MCP resource, or a template of such URIs, names.
type uriSubject struct {
	subject         // a pathSubject, urlSubject or hostSubject; plain where only its server knows
	text     string // as it may be dispatched
	template bool   // it can be listed only
}

// uri reads a URI that a server will read again. So what two readers could take for
// different things is refused, and a file is named by its real path.
func (v View) uri(text string) (subject, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || !isScheme(scheme) {
		return nil, bad(`begin it with a scheme, as in "file:///"`, "is no absolute URI")
	}
	if strings.ContainsAny(text, " \\") || hasControl(text) {
		return nil, bad("write them escaped", `holds spaces, control characters or "\"`)
	}
	fixed, _, template := strings.Cut(text, "{")
	if template {
		fixed = fixed[:strings.LastIndexByte(fixed, '/')+1]
	}
	switch strings.ToLower(scheme) {
	case "file":
		return v.fileSubject(text, fixed, template)
	case "http", "https":
		if template {
			return uriSubject{urlSubject{}, text, true}, nil
		}
		u, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		if whole := u.String(); whole != text && whole != text+"/" {
			return nil, bad("write "+whole, "can be read in more than one way")
		}
		return uriSubject{urlSubject{u}, text, false}, nil
	}
	if inner, _, ok := strings.Cut(rest, ":"); ok && isScheme(inner) || strings.Contains(withoutBrackets(rest), "::") {
		return nil, bad("", "is a URI within another, and servers differ in which they read")
	}
	s, err := reached(strings.ToLower(scheme), rest)
	if err != nil {
		return nil, err
	}
	_, unknown := s.(plain)
	return uriSubject{s, text, template && !unknown}, nil
}

// fileSubject reads a file URL, or a template whose fixed part is one. It is sent so that a
// server that undoes no escapes, or undoes them twice, finds the same file or none.
func (v View) fileSubject(text, fixed string, template bool) (subject, error) {
	if fixed == "" {
		return nil, bad(`write "file:///" and a directory first`, "is a template of any file")
	}
	if slices.Contains(strings.Split(weburl.Unescape(weburl.Unescape(fixed)), "/"), "..") {
		return nil, bad("write the path without dots", `holds "..", behind escapes or not`)
	}
	p, err := v.place(fixed, "")
	if err != nil {
		return nil, err
	}
	sent := fileURI(fixed, p.path)
	if template {
		if sent = fixed; needless(fixed) {
			return nil, bad("write the path without escapes", "holds escapes of what needs none")
		}
	}
	for _, other := range []string{strings.TrimPrefix(sent, "file://"), weburl.Unescape(p.path)} {
		if other == p.path || !strings.Contains(other+p.path, "%") {
			continue
		}
		if q, err := v.place(other, "/"); err != nil || q.exists && q.path != p.path {
			return nil, bad("", "names one file with its escapes undone, and another without")
		}
	}
	if template {
		sent = text
	}
	return uriSubject{pathSubject{v, p}, sent, template}, nil
}

// withoutBrackets returns s without the IPv6 address that it may hold.
func withoutBrackets(s string) string {
	before, behind, _ := strings.Cut(s, "[")
	_, after, _ := strings.Cut(behind, "]")
	return before + after
}

// isScheme reports whether s is the scheme of a URI (RFC 3986, section 3.1); one letter
// is the drive of a path.
func isScheme(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return len(s) > 1 && strings.IndexByte(letters, s[0]) >= 0 && strings.Trim(s, letters+"0123456789+.-") == ""
}

// fileURI returns the file URL of path: as it was given, if that says the same and escapes
// only what must be.
func fileURI(given, path string) string {
	if p, ok := strings.CutPrefix(given, "file://"); ok && weburl.Unescape(p) == path && !needless(p) {
		return given
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = escapeSegment(parts[i])
	}
	return "file://" + strings.Join(parts, "/")
}

// mayStand are the characters that a segment of a path may hold as they are, beside letters
// and digits (RFC 3986, section 3.3, pchar).
const mayStand = "-._~!$&'()*+,;=:@"

func stands(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(mayStand, c) >= 0
}

// needless reports whether s has an escape of what may stand as it is, or of "/".
func needless(s string) bool {
	for i := 0; i+2 < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if c := weburl.Unescape(s[i : i+3]); len(c) == 1 && (stands(c[0]) || c == "/") {
			return true
		}
	}
	return false
}

func escapeSegment(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if stands(s[i]) {
			b.WriteByte(s[i])
		} else {
			b.WriteString(weburl.Escape(s[i : i+1]))
		}
	}
	return b.String()
}

func (s uriSubject) real() (string, bool) { return s.text, true }

// on returns the effects on what the URI names. A kind that is on something else has
// none, as one annotation serves the URIs of every scheme.
func (s uriSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	if s.template && k != act.List {
		return nil, bad("put values in the place of what is in braces", "is a template of URIs, not one")
	}
	switch t := s.subject.(type) {
	case pathSubject:
		if k.On() != act.Path {
			return nil, nil
		}
	case hostSubject:
		if k.On() != act.URL {
			return nil, nil
		}
		return t.on(act.Connect, tree)
	case urlSubject:
		if k.On() != act.URL {
			return nil, nil
		}
	default:
		return nil, nil
	}
	return s.subject.on(k, tree)
}
