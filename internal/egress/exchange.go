package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/inspect"
)

// An exchange handles requests of one stream: each is decided by itself, and goes out as
// it was decided.
type exchange struct {
	way    *way
	stream *stream // nil for a process of ours
	via    via
	scheme string
	host   weburl.Host // that each request is for; the zero Host: that of its URL
	port   uint16
}

var (
	errTarget  = errors.New("the target of the request is no URL that can be decided on")
	errTwo     = errors.New("the request names another host than its connection")
	errOneForm = errors.New("the path of the request can be sent in one form only if it does not begin with two slashes")
	errMethod  = errors.New("requests with this method are not carried")
	errInstead = errors.New("the request asks for another method than its own")
)

// ServeHTTP decides about r and carries it.
func (x *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, err := x.target(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, plain(err.Error()), http.StatusBadRequest)
		return
	}
	if x.way.packages.Serves(u) {
		x.way.packages.Serve(w, r, u, judge{x})
		return
	}
	if x.way.o.Models.Host(u.Host) {
		x.infer(w, r, u)
		return
	}
	q, found := x.question(r, u)
	t, no := x.ask(r.Context(), q)
	if no != nil {
		no.answer(w)
		return
	}
	e := ending{}
	defer func() { x.way.done(t, e) }()
	if q.facts.Misplaced != "" {
		no = misplaced(t.Ticket, q.facts.Misplaced)
		e.err, e.Status = no, no.status()
		no.answer(w)
		return
	}
	out, err := x.outgoing(r, t.Ticket, found, &e)
	if err != nil {
		e.err, e.Status = err, http.StatusBadRequest
		w.Header().Set("Connection", "close")
		http.Error(w, plain(err.Error()), e.Status)
		return
	}
	f, err := x.way.forwarder(u.Host, t.Lend, &e)
	if err == nil && r.Header.Get("Upgrade") != "" {
		var in *inspect.Inspector
		in, err = x.way.inspector(u.Host, t.Lend)
		x.overSocket(f, newSocket(r.Context(), x, q, &e), in)
	}
	if err != nil {
		e.err, e.Status = err, http.StatusBadGateway
		http.Error(w, plain(err.Error()), e.Status)
		return
	}
	got, err := f.Forward(w, out)
	e.Status, e.Sent, e.Received, e.err = got.Status, got.Sent, got.Received, cmp.Or(err, e.err)
}

// target returns the URL of r as a client means it. It is not yet canonical: who decides
// says what goes out.
func (x *exchange) target(r *http.Request) (weburl.URL, error) {
	switch r.Method {
	case http.MethodConnect, http.MethodTrace, "TRACK":
		return weburl.URL{}, errMethod
	}
	if strings.ToUpper(r.Method) != r.Method { // some servers take it for the one that is
		return weburl.URL{}, errMethod
	}
	text := r.RequestURI
	if !x.host.IsZero() {
		named, port, err := weburl.ParseHostPort(r.Host)
		if port == 0 {
			port = weburl.DefaultPort(x.scheme)
		}
		if err != nil || named != x.host || port != x.port {
			return weburl.URL{}, errTwo
		}
		if !strings.HasPrefix(text, "/") {
			return weburl.URL{}, errTarget
		}
		text = x.scheme + "://" + x.host.WithPort(x.port) + text
	}
	u, err := weburl.Parse(text)
	if err != nil {
		return u, fmt.Errorf("%w: it %w", errTarget, err)
	}
	if u.HasFragment || x.host.IsZero() && u.Scheme != "http" {
		return u, errTarget // a proxy that is asked for https opens no TLS for whom it cannot show that
	}
	if instead(r, u) {
		return u, errInstead
	}
	return u, nil
}

// methodFields are those by which some servers take another method than that of the request.
var methodFields = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// instead reports whether r asks to be taken for a request of another method, which would
// not be the one that is decided.
func instead(r *http.Request, u weburl.URL) bool {
	for _, name := range methodFields {
		for _, v := range r.Header[name] {
			if !strings.EqualFold(strings.TrimSpace(v), r.Method) {
				return true
			}
		}
	}
	for part := range strings.FieldsFuncSeq(u.Query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if weburl.Unescape(name) == "_method" && !strings.EqualFold(weburl.Unescape(value), r.Method) {
			return true
		}
	}
	return false
}

// question is what is decided about r.
func (x *exchange) question(r *http.Request, u weburl.URL) (question, []borrowed) {
	kind := act.Send
	// A body is sent, whatever the method: what may be read there need not be told anything.
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0 && r.Header.Get("Upgrade") == "" && !mutates(u.Query) {
		kind = act.Fetch
	}
	q := question{
		effects: []act.Effect{{Kind: kind, Resource: act.Resource{Type: act.URL, Text: u.String()}}},
		facts:   facts{Method: r.Method, Path: u.Path, Query: u.Query, Via: x.via},
	}
	if x.stream != nil {
		q.facts.PID = x.stream.from.PID
	}
	found, wrong := x.way.borrow(r, u)
	q.facts.Misplaced = wrong
	for _, b := range found {
		q.effects = append(q.effects, act.Effect{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: b.sentinel.Name}})
	}
	if wrong != "" {
		q.effects = append(q.effects, act.Effect{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: wrong}})
	}
	return q, found
}

// ask has q decided, and lets the stream wait for it.
func (x *exchange) ask(ctx context.Context, q question) (*ticket, *DeniedError) {
	if x.stream != nil {
		x.stream.waiting.Add(1)
		defer x.stream.touch()
		defer x.stream.waiting.Add(-1)
	}
	return x.way.decide(ctx, q)
}

// outgoing returns r as it was decided: to the URL of the ticket, byte for byte, with
// what the ticket lends.
func (x *exchange) outgoing(r *http.Request, t act.Ticket, found []borrowed, e *ending) (*http.Request, error) {
	if len(t.Effects) == 0 || t.Effects[0].Resource.Type != act.URL {
		return nil, errTarget
	}
	u, err := weburl.Parse(t.Effects[0].Resource.Text)
	if err != nil {
		return nil, fmt.Errorf("%w: it %w", errTarget, err)
	}
	out := r.WithContext(httptrace.WithClientTrace(noting(r.Context(), &e.err), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { e.Address = i.Conn.RemoteAddr().String() },
	}))
	out.Header = r.Header.Clone()
	if err := x.way.lend(out.Header, &u, t.Lend, found); err != nil {
		return nil, err
	}
	if out.URL, err = wireURL(u); err != nil {
		return nil, err
	}
	out.Host = out.URL.Host
	return out, nil
}

// wireURL returns u in the form in which package http sends exactly its text.
func wireURL(u weburl.URL) (*url.URL, error) {
	host := u.Host.String()
	if u.Port != weburl.DefaultPort(u.Scheme) {
		host = u.HostPort()
	}
	w := &url.URL{Scheme: u.Scheme, Host: host, Opaque: u.Path, RawQuery: u.Query, ForceQuery: u.HasQuery}
	if strings.HasPrefix(u.Path, "//") { // as opaque, it would name a host
		w.Opaque, w.RawPath = "", u.Path
		path, err := url.PathUnescape(u.Path)
		if w.Path = path; err != nil || w.EscapedPath() != u.Path {
			return nil, errOneForm
		}
	}
	return w, nil
}

// dialText connects to "host:port", which a ticket allowed.
func (d dialer) dialText(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := weburl.ParseHostPort(address)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("connecting to %q: it is no host and port", address)
	}
	conn, _, err := d.dial(ctx, host, port)
	return conn, err
}
