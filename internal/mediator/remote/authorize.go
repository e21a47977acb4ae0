package remote

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"ringfence/internal/mediator"
	"ringfence/internal/sys/ipc"
)

// An Authorizer shows a server that we may use it. Its methods may be called at the same
// time; their errors are read by agents.
type Authorizer interface {
	// Sign puts what the server is shown into r, if there is anything.
	Sign(r *http.Request) error
	// Seen is told of every answer.
	Seen(resp *http.Response)
	// Refused is told of an answer 401 or 403 to r, and reports whether the same request
	// may be sent once more, signed anew. It reads nothing of the body.
	Refused(r *http.Request, resp *http.Response) (again bool, err error)
}

// maxSigned is how often a request that is refused is sent: with a token that has ended,
// with a new one, and once more for the number that a proof needs or for more rights.
const maxSigned = 4

// errFar says what is missing to reach other machines.
var errFar = errors.New("other machines are reached only where each connection is decided and recorded, which is in a session; " +
	"here only loopback addresses and Unix sockets (\"ringfence\": {\"socket\": …}) are reached")

// A NotAllowedError is why what carries a request did not: policy, in words for an agent.
type NotAllowedError struct{ Reason string }

func (n *NotAllowedError) Error() string { return n.Reason }

// Carrier returns what carries requests to this machine itself, and all others by away;
// with nil, these are an error that says what is missing.
func Carrier(away http.RoundTripper) http.RoundTripper {
	return &carrier{here: ipc.HTTP(""), away: away}
}

type carrier struct{ here, away http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case isHere(r.URL):
		return c.here.RoundTrip(r)
	case c.away != nil:
		return c.away.RoundTrip(r)
	}
	return nil, errFar
}

// CloseIdleConnections is what [http.Client] looks for.
func (c *carrier) CloseIdleConnections() {
	for _, t := range []http.RoundTripper{c.here, c.away} {
		if idle, ok := t.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	}
}

// isHere reports whether u names this machine, without looking anything up.
func isHere(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// authorizer is what shows s that we may use it, the same one in every incarnation of
// it. A server whose entry has its own Authorization header is shown that one, and one
// behind a Unix socket nothing: nobody knows who would give a token for it.
func (s starter) authorizer(srv mediator.Server, carrier http.RoundTripper) (Authorizer, error) {
	if s.o.Authorize == nil || srv.Headers["Authorization"] != "" || srv.Ringfence.Socket != "" {
		return nil, nil
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if a := s.known.by[srv.Name]; a != nil {
		return a, nil
	}
	a, err := s.o.Authorize(srv, carrier)
	if err == nil {
		s.known.by[srv.Name] = a
	}
	return a, err
}

// do sends r to the server, signed, and once more where it wants another token.
func (c *conn) do(r *http.Request) (*http.Response, error) {
	if c.auth == nil {
		return c.send(r)
	}
	for tries := 1; ; tries++ {
		if err := c.auth.Sign(r); err != nil {
			return nil, err
		}
		resp, err := c.send(r)
		if err != nil {
			return nil, err
		}
		c.auth.Seen(resp)
		if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			return resp, nil
		}
		again, err := c.auth.Refused(r, resp)
		if err == nil && (!again || tries == maxSigned) {
			return resp, nil
		}
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		if r, err = anew(r); err != nil {
			return nil, err
		}
	}
}

// anew is r as it was before it was sent and signed.
func anew(r *http.Request) (*http.Request, error) {
	next := r.Clone(r.Context())
	next.Header.Del("Authorization")
	next.Header.Del("Dpop")
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, errors.New("the request could not be sent again")
		}
		next.Body = body
	}
	return next, nil
}

// errEchoed is the answer in place of one that holds a token.
var errEchoed = errors.New("it sent back the token that it was shown, so its answer is not passed on")

// echoes reports whether what the server sent holds the token of this connection.
func (c *conn) echoes(raw []byte) bool {
	t, ok := c.auth.(interface{ Holds(raw []byte) bool })
	return ok && t.Holds(raw)
}

// unauthorized is why a server that answers 401 is not used.
func (c *conn) unauthorized() error {
	switch {
	case c.headers["Authorization"] != "":
		return errors.New("it does not accept the Authorization header of its entry (HTTP 401)")
	case c.auth != nil:
		return errors.New("it does not accept the token that was obtained for it (HTTP 401)")
	}
	return errors.New(`it wants authorization (HTTP 401): ` +
		`"headers": {"Authorization": "Bearer ${NAME}"} in its entry passes a token that you have`)
}

// trimmed is an error of [http.Client] without the URL, which may hold a secret.
func trimmed(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return errors.New(strings.TrimSpace(err.Error()))
}
