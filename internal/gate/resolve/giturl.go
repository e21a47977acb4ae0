package resolve

import (
	"strings"

	"ringfence/internal/act/weburl"
)

// remoteURL reads what git would contact.
func (v View) remoteURL(raw, dir string) (remoteURL, error) {
	if err := checkRemoteText(raw); err != nil {
		return remoteURL{}, err
	}
	u, err := v.contact(raw, dir)
	if err != nil {
		return u, err
	}
	return u, checkRemoteText(u.dispatch)
}

func (v View) contact(raw, dir string) (remoteURL, error) {
	if scheme, rest, ok := strings.Cut(raw, "://"); ok {
		return v.schemeURL(strings.ToLower(scheme), rest)
	}
	colon, slash := strings.IndexByte(raw, ':'), strings.IndexByte(raw, '/')
	if raw[0] == '[' || strings.Contains(raw, "@[") {
		colon = strings.Index(raw, "]:") + 1
	}
	if colon > 0 && (slash < 0 || colon < slash) {
		return scpURL(raw[:colon], raw[colon+1:])
	}
	return v.localURL(raw, dir)
}

func (v View) schemeURL(scheme, rest string) (remoteURL, error) {
	authority, p, _ := strings.Cut(rest, "/")
	switch scheme {
	case "file":
		return v.localURL("file://"+rest, "/")
	case "https", "http", "ssh", "git":
	case "git+ssh", "ssh+git":
		scheme = "ssh"
	default:
		return remoteURL{}, bad("", "has the scheme %q: remotes are https, ssh, git and file", scheme)
	}
	if strings.ContainsAny(rest, `?#\`) {
		return remoteURL{}, bad("", `holds "?", "#" or "\", which the URL of a remote cannot`)
	}
	if scheme != "https" && scheme != "http" {
		p = weburl.Unescape(p)
	}
	return joinRemote(scheme, authority, p, "")
}

// scpURL reads "user@host:path".
func scpURL(authority, p string) (remoteURL, error) {
	user, host, ok := strings.Cut(authority, "@")
	if !ok {
		user, host = "", authority
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner = strings.TrimSuffix(inner, "]")
		if strings.Count(inner, ":") < 2 {
			host = inner
		}
	} else if strings.Contains(host, ":") {
		return remoteURL{}, bad("", "is no remote")
	}
	if user != "" {
		host = user + "@" + host
	}
	return joinRemote("ssh", host, strings.TrimPrefix(p, "/"), p)
}

// defaultPorts of the schemes of remotes.
var defaultPorts = map[string]uint16{"https": 443, "http": 80, "ssh": 22, "git": 9418}

// joinRemote makes the two texts of a remote. scp is the path of a remote that
// was written "host:path", which git must get in that form.
func joinRemote(scheme, authority, p, scp string) (remoteURL, error) {
	user, hostport := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hostport = authority[:i], authority[i+1:]
		const plainUser = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
		if user == "" || user[0] == '-' || strings.Trim(user, plainUser) != "" {
			return remoteURL{}, bad("use a credential helper or an SSH key", "holds a password or something else that is no plain user name")
		}
		user += "@"
	}
	h, port, err := weburl.ParseHostPort(hostport)
	if err != nil {
		return remoteURL{}, bad("", "%s", err)
	}
	if strings.HasPrefix(h.String(), "-") || strings.HasPrefix(p, "-") {
		return remoteURL{}, bad("", "could be read as an option")
	}
	host := h.String()
	if port != 0 && port != defaultPorts[scheme] {
		host = h.WithPort(port)
	}
	segments, err := remotePath(p, scheme == "ssh" || scheme == "git")
	if err != nil {
		return remoteURL{}, err
	}
	u := remoteURL{host: h, dispatch: scheme + "://" + user + host + "/" + segments}
	if scp != "" && port == 0 {
		u.dispatch = user + host + ":" + scp
	}
	if scheme != "ssh" {
		user = ""
	}
	u.judged = scheme + "://" + user + host + "/" + strings.TrimSuffix(strings.TrimSuffix(segments, ".git"), "/")
	return u, nil
}

// remotePath returns the path of a remote in canonical form, without the first
// slash. With raw it is not percent-encoded yet.
func remotePath(p string, raw bool) (string, error) {
	var out []string
	for s := range strings.SplitSeq(p, "/") {
		plain := s
		if !raw {
			plain = weburl.Unescape(s)
		}
		switch {
		case plain == "" || plain == ".":
			continue
		case plain == ".." || strings.ContainsAny(plain, `/\`) || hasControl(plain):
			return "", bad("", `has a path that holds "..", "\" or an escaped "/"`)
		}
		out = append(out, strings.ReplaceAll(weburl.Escape(plain), "%40", "@"))
	}
	if len(out) == 0 {
		return "", bad("", "names no repository on that host")
	}
	return strings.Join(out, "/"), nil
}

// localURL reads a repository on this machine.
func (v View) localURL(raw, dir string) (remoteURL, error) {
	p, err := v.place(raw, dir)
	if err != nil {
		return remoteURL{}, err
	}
	if strings.Contains(p.path, "#") {
		return remoteURL{}, bad("", `leads to %q, whose "#" would read as a ref`, p.path)
	}
	return remoteURL{judged: "file://" + p.path, dispatch: p.path, local: p.path}, nil
}
