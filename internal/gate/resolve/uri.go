package resolve

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// A uriSubject is what the URI of an MCP resource, or a template of such URIs, names.
type uriSubject struct {
	subject        // a pathSubject or a urlSubject; plain where only its server knows
	text    string // as it may be dispatched
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
		if fixed == "" {
			return nil, bad(`write "file:///" and a directory first`, "is a template of any file")
		}
		if slices.Contains(strings.Split(weburl.Unescape(weburl.Unescape(fixed)), "/"), "..") {
			return nil, bad("write the path without dots", `holds "..", behind escapes or not`)
		}
		p, err := v.place(fixed, "")
		if err != nil || template {
			return uriSubject{pathSubject{v, p}, text}, err
		}
		return uriSubject{pathSubject{v, p}, fileURI(text, p.path)}, nil
	case "http", "https":
		if template {
			return uriSubject{plain{}, text}, nil
		}
		u, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		if whole := u.String(); whole != text && whole != text+"/" {
			return nil, bad("write "+whole, "can be read in more than one way")
		}
		return uriSubject{urlSubject{u}, text}, nil
	}
	if inner, _, ok := strings.Cut(rest, ":"); ok && isScheme(inner) {
		return nil, bad("", "is a URI within another, and servers differ in which they read")
	}
	return uriSubject{plain{}, text}, nil
}

// isScheme reports whether s is the scheme of a URI (RFC 3986, section 3.1); one letter
// is the drive of a path.
func isScheme(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return len(s) > 1 && strings.IndexByte(letters, s[0]) >= 0 && strings.Trim(s, letters+"0123456789+.-") == ""
}

// fileURI returns the file URL of path, as it was given if that says the same.
func fileURI(given, path string) string {
	if p, ok := strings.CutPrefix(given, "file://"); ok && weburl.Unescape(p) == path {
		return given
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = weburl.Escape(parts[i])
	}
	return "file://" + strings.Join(parts, "/")
}

func (s uriSubject) real() (string, bool) { return s.text, true }

// on returns the effects on what the URI names. A kind that is on something else has
// none, as one annotation serves the URIs of every scheme.
func (s uriSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	switch s.subject.(type) {
	case pathSubject:
		if k.On() != act.Path {
			return nil, nil
		}
	case urlSubject:
		if k.On() != act.URL {
			return nil, nil
		}
	default:
		return nil, nil
	}
	return s.subject.on(k, tree)
}
