package egress

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/mitm"
	"ringfence/internal/inspect"
)

// What was lent to a host is taken out of everything that the host sends from then on:
// the box gets what stands for it. What stands for a secret goes out in its place only,
// and not in the body of a request to anybody but what runs models, whose conversations
// hold what a program printed.

// A lending is a value that a host has been lent.
type lending struct {
	host weburl.Host
	inspect.Secret
}

// lendings are all of one box.
type lendings struct {
	mu   sync.Mutex
	all  []lending
	read map[weburl.Host]*inspect.Inspector
}

var errTooManyLoans = errors.New("this box has been lent too many secrets: start another")

// maxLendings bounds them: a token that is refreshed is another value each time.
const maxLendings = 512

// inspector returns who knows what host has been lent, loans included; nil if that is
// nothing.
func (l *lendings) inspector(host weburl.Host, loans []act.Loan) (*inspect.Inspector, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := true
	for _, one := range loans {
		had := func(o lending) bool { return o.host == host && o.Name == one.Name && string(o.Value) == one.Value }
		if slices.ContainsFunc(l.all, had) {
			continue
		}
		if len(l.all) >= maxLendings {
			return nil, errTooManyLoans
		}
		known = false
		l.all = append(l.all, lending{host, inspect.Secret{Name: one.Name, Value: []byte(one.Value), Mask: one.Sentinel}})
	}
	if in := l.read[host]; known {
		return in, nil
	}
	var secrets []inspect.Secret
	for _, o := range l.all {
		if o.host == host {
			secrets = append(secrets, o.Secret)
		}
	}
	in, err := inspect.New(secrets)
	if err != nil {
		return nil, err
	}
	if l.read == nil {
		l.read = map[weburl.Host]*inspect.Inspector{}
	}
	l.read[host] = in
	return in, nil
}

// placeholders returns who knows what stands for secrets, nil if nothing does.
func placeholders(all []loan.Sentinel) *inspect.Inspector {
	var texts []inspect.Secret
	for _, s := range all {
		texts = append(texts, inspect.Secret{Name: s.Name, Value: []byte(s.Text)})
	}
	in, err := inspect.New(texts)
	if err != nil || len(texts) == 0 {
		return nil // none of it is a secret; in heads it is found all the same
	}
	return in
}

// forwarder is what carries one request to host for which loans go out. Labels of what it
// finds in the reply are added to e.
func (w *way) forwarder(host weburl.Host, loans []act.Loan, e *ending) (*mitm.Forwarder, error) {
	in, err := w.inspector(host, loans)
	if err != nil {
		return nil, err
	}
	base := w.outward
	if w.o.Models.Host(host) {
		base = outward{w.serviced}
	}
	f := &mitm.Forwarder{Transport: base, Limits: w.forward.Limits}
	if w.placeholders != nil && !w.o.Models.Host(host) {
		f.Request = func(h http.Header) mitm.Filter {
			if !readable(h) {
				return nil // what is packed so is no text that anybody swaps
			}
			return w.placeholders.Stream(inspect.Arguments, inspect.Known)
		}
	}
	if in == nil {
		f.Transport = &looking{base, &w.shapes, e}
		return f, nil
	}
	f.Transport = &scrubbing{base, in}
	f.Reply = func(http.Header) mitm.Filter { return &labelled{in.Stream(inspect.Result, inspect.Known), e} }
	return f, nil
}

// A labelled is a filter that adds labels of what it saw to an ending.
type labelled struct {
	*inspect.Stream
	e *ending
}

// End implements mitm.Filter.
func (l *labelled) End() ([]byte, error) {
	rest, err := l.Stream.End()
	l.e.label(l.Findings().Labels)
	return rest, err
}

// label adds labels that a session gets with this ending.
func (e *ending) label(labels []act.Label) {
	for _, l := range labels {
		if !slices.Contains(e.labels, l) {
			e.labels = append(e.labels, l)
		}
	}
}

// readable reports whether a body with that header can be looked at.
func readable(h http.Header) bool {
	switch strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding"))) {
	case "", "identity", "gzip", "x-gzip":
		return true
	}
	return false
}

// isText reports whether a body with that header is for people, models or programs that
// read text: only such text can tell them something.
func isText(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	_, sub, _ := strings.Cut(media, "/")
	return strings.HasPrefix(media, "text/") || sub == "json" || strings.HasSuffix(sub, "+json") || sub == "xml" ||
		strings.HasSuffix(sub, "+xml") || sub == "javascript" || sub == "x-ndjson"
}

// scrubbing is a transport whose replies have what was lent masked in their header and
// trailer, and come in a form that can be read.
type scrubbing struct {
	base http.RoundTripper
	in   *inspect.Inspector
}

// RoundTrip implements http.RoundTripper.
func (s *scrubbing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	encoding := "identity"
	if strings.Contains(strings.ToLower(r.Header.Get("Accept-Encoding")), "gzip") {
		encoding = "gzip"
	}
	r.Header.Set("Accept-Encoding", encoding)
	r.Header.Del("Range") // in parts, it would not be seen
	r.Header.Del("If-Range")
	res, err := s.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	s.mask(res.Header)
	res.Body = &masked{res.Body, s, res}
	return res, nil
}

// mask masks the values of h, and drops fields whose name holds what was lent.
func (s *scrubbing) mask(h http.Header) {
	for name, values := range h {
		if _, held := s.in.Contains([]byte(name)); held {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = string(s.in.Mask([]byte(v)))
		}
	}
}

// A masked is a body behind which comes a trailer that is masked.
type masked struct {
	io.ReadCloser
	by  *scrubbing
	res *http.Response
}

// Read implements io.Reader.
func (m *masked) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if err != nil {
		m.by.mask(m.res.Trailer)
	}
	return n, err
}

// Write passes writes on, where the connection was handed over (RFC 9110 §7.8).
func (m *masked) Write(p []byte) (int, error) {
	to, ok := m.ReadCloser.(io.Writer)
	if !ok {
		return 0, http.ErrNotSupported
	}
	return to.Write(p)
}
