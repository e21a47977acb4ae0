package mediator

import (
	"net/textproto"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A Transport is how a server with a URL is spoken to.
type Transport string

// The transports. The zero value is found out: the newer one is tried first.
const (
	TransportHTTP Transport = "http" // streamable HTTP, of revision 2025-03-26 and later
	TransportSSE  Transport = "sse"  // HTTP with server-sent events, of revision 2024-11-05
)

// A Quota is what one server may be used for. A zero is no bound of its own.
type Quota struct {
	Calls      int   // that start within a minute
	Bytes      int64 // of its messages to us, within a minute
	Concurrent int   // calls at once
}

// maxQuota bounds the figures of a Quota.
const maxQuota = 1 << 40

// maxHeaders bounds the headers of an entry.
const maxHeaders = 32

// Remote reports whether s is reached over HTTP, not started.
func (s Server) Remote() bool { return s.URL != "" }

// ShownURL is the URL of s as it may be told and recorded: as it is written where it
// holds variables of the environment, and without what stands for a user.
func (s Server) ShownURL() string {
	if strings.Contains(s.Written.URL, "${") {
		return s.Written.URL
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

func (r *serversReader) transport(s *Server, m strictjson.Member) (Transport, error) {
	t, err := r.text(m)
	if err != nil {
		return "", err
	}
	switch t {
	case "stdio":
		return "", nil
	case "http", "streamable-http", "streamableHttp":
		return TransportHTTP, nil
	case "sse":
		return TransportSSE, nil
	}
	return "", r.fail(m.Start, `server %q: type %s is none of "stdio", "http" and "sse"`, s.Name, clip(t))
}

// remote returns an error unless what s says of HTTP goes together.
func (r *serversReader) remote(s Server, e strictjson.Member) error {
	if !s.Remote() {
		switch {
		case s.Type != "":
			return r.fail(e.At, `server %q: type %q needs a "url"`, s.Name, s.Type)
		case s.Headers != nil || s.Ringfence.Socket != "" || !reflect.ValueOf(s.Ringfence.OAuth).IsZero():
			return r.fail(e.At, `server %q: "headers", "socket" and "oauth" are only for a server with a "url"`, s.Name)
		}
		return nil
	}
	if s.Args != nil || s.Env != nil || s.Cwd != "" || s.Ringfence.Paths != nil || s.Ringfence.Unboxed {
		return r.fail(e.At, `server %q: a server with a "url" is not started by us, so "args", "env", "cwd", "paths" and "unboxed" are not for it`, s.Name)
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		return r.fail(e.At, `server %q: its "url" is not one`, s.Name) // err may quote a secret
	case u.Scheme != "http" && u.Scheme != "https":
		return r.fail(e.At, `server %q: its "url" must begin with http:// or https://`, s.Name)
	case u.User != nil:
		return r.fail(e.At, `server %q: its "url" has a user or password; "headers": {"Authorization": "${NAME}"} is the place for them`, s.Name)
	case u.Fragment != "":
		return r.fail(e.At, `server %q: its "url" has a fragment`, s.Name)
	}
	return nil
}

// ownHeaders are set by the transport.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Last-Event-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// secretWords are parts of names of headers and variables that carry secrets.
var secretWords = []string{"auth", "cookie", "credential", "key", "pass", "secret", "session", "signature", "token"}

// headers returns the headers of an entry. What may be a secret stands there by
// reference only, so that the file can be shown and shared.
func (r *serversReader) headers(of strictjson.Member) (map[string]string, error) {
	members, err := r.members(span{of.Start, of.End}, `"headers"`)
	if err != nil {
		return nil, err
	}
	if len(members) > maxHeaders {
		return nil, r.fail(of.At, "%d headers, at most %d", len(members), maxHeaders)
	}
	all := make(map[string]string, len(members))
	for _, m := range members {
		name := textproto.CanonicalMIMEHeaderKey(m.Name)
		if !isToken(m.Name) || slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Proxy-") {
			return nil, r.fail(m.At, "%s cannot be set as a header", clip(m.Name))
		}
		if _, twice := all[name]; twice {
			return nil, r.fail(m.At, "the header %s is there twice", clip(m.Name))
		}
		written, err := r.text(m)
		if err != nil {
			return nil, err
		}
		if named(name) && !strings.Contains(written, "${") {
			return nil, r.fail(m.Start, `the header %s may hold a secret: write that by reference, as "${NAME}" or "Bearer ${NAME}", and set that variable`, clip(m.Name))
		}
		if all[name], err = r.expanded(m); err != nil {
			return nil, err
		}
		r.secret(name, all[name], true)
		if !isFieldValue(all[name]) {
			return nil, r.fail(m.Start, "the header %s holds what no header can", clip(m.Name))
		}
	}
	return all, nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !isWord(c) && !strings.ContainsRune("!#$%&'*+-.^`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s is visible ASCII with spaces, and of a length that servers take.
func isFieldValue(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 && c != '\t' || c > 0x7e {
			return false
		}
	}
	return len(s) <= 8<<10 && s == strings.Trim(s, " \t")
}

func (r *serversReader) quota(of strictjson.Member) (Quota, error) {
	var q Quota
	members, err := r.members(span{of.Start, of.End}, `"quota"`)
	for _, m := range members {
		var n int64
		if n, err = r.number(m); err != nil {
			return q, err
		}
		switch m.Name {
		case "calls":
			q.Calls = int(n)
		case "bytes":
			q.Bytes = n
		case "concurrent":
			q.Concurrent = int(n)
		default:
			return q, r.fail(m.At, `unknown key %s in "quota"; there are calls and bytes, of a minute, and concurrent`, clip(m.Name))
		}
	}
	return q, err
}

func (r *serversReader) number(m strictjson.Member) (int64, error) {
	n, err := strconv.ParseInt(string(r.src[m.Start:m.End]), 10, 64)
	if err != nil || n < 1 || n > maxQuota {
		return 0, r.fail(m.Start, "%s must be a whole number of at least 1", clip(m.Name))
	}
	return n, nil
}
