package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/sys/ipc"
)

// callback is the path of the loopback address to which an authorization server sends
// the person's browser back, RFC 8252, section 7.3.
const callback = "/callback"

// fromPerson obtains a grant that a person agrees to in their browser: the authorization
// code grant with a challenge, RFC 7636.
func (c *Client) fromPerson(ctx context.Context, f found, scopes []string, before Registered) error {
	if f.authorizeAt == nil {
		return errors.New("its authorization server has no page at which a person could agree")
	}
	ctx, cancel := context.WithTimeout(ctx, personTime)
	defer cancel()
	back, err := c.listen(before.Redirect)
	if err != nil {
		return err
	}
	defer back.close()
	for registered := false; ; registered = true {
		client, err := c.register(ctx, f, back.uri, before)
		if err != nil {
			return err
		}
		err = c.agree(ctx, f, client, scopes, back)
		if registered || !client.Dynamic || client != before || !refusedWith(err, "invalid_client", "unauthorized_client") {
			return err
		}
		before = Registered{} // it has forgotten us
	}
}

// agree has the person agree once, and keeps what that gives.
func (c *Client) agree(ctx context.Context, f found, client Registered, scopes []string, back *redirect) error {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	verifier, state := base64.RawURLEncoding.EncodeToString(secret), rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	at, err := askAt(f.authorizeAt, url.Values{
		"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {back.uri}, "state": {state}, "resource": {f.resource},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}, scopes)
	if err != nil {
		return err
	}
	back.expect(state)
	if err := c.o.Person(ctx, at); err != nil {
		return fmt.Errorf("showing a person where to agree: %w", err)
	}
	said, err := back.wait(ctx)
	if err != nil {
		return err
	}
	code, err := said.code(f)
	if err != nil {
		return err
	}
	return c.granted(ctx, f, client, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {back.uri}, "code_verifier": {verifier}, "resource": {f.resource},
	}, scopes)
}

// askAt is the URL that the person opens. What the page's own URL says already must be
// none of what we say.
func askAt(page *url.URL, values url.Values, scopes []string) (string, error) {
	if len(scopes) > 0 {
		values.Set("scope", strings.Join(scopes, " "))
	}
	at := *page
	query, err := url.ParseQuery(at.RawQuery)
	if err != nil {
		return "", errors.New("its authorization endpoint has a query that cannot be read")
	}
	for name, v := range values {
		if query.Has(name) {
			return "", fmt.Errorf("its authorization endpoint has %q in its URL already", name)
		}
		query[name] = v
	}
	at.RawQuery = query.Encode()
	return at.String(), nil
}

// A reply is what the browser came back with.
type reply struct{ query url.Values }

// code returns the code that the authorization server of f has given. Whose it is comes
// first, RFC 9207, section 2.4: a code of another is sent to nobody.
func (s reply) code(f found) (string, error) {
	iss, named := s.query["iss"]
	switch {
	case f.namesItself && !named:
		return "", errors.New("the answer to the login does not say which authorization server gave it, as that one promises to")
	case named && !f.namesItself:
		return "", errors.New("the answer to the login names an authorization server, which ours does not promise to: it may be of another")
	case named && iss[0] != f.issuer:
		return "", errors.New("the answer to the login is of another authorization server")
	}
	if s.query.Has("error") {
		if why := word(s.query.Get("error")); why != "" {
			return "", fmt.Errorf("the login ended with %s", why)
		}
		return "", errors.New("the login ended with an error")
	}
	code := s.query.Get("code")
	if !isTokenText(code) {
		return "", errors.New("the answer to the login has no code")
	}
	return code, nil
}

// A redirect waits on the loopback address for the browser to come back.
type redirect struct {
	uri   string
	host  string
	l     net.Listener
	srv   *http.Server
	state chan string
	said  chan reply
}

// listen waits at the port that was registered before, if it is free, or at the one of
// the entry, or else at any.
func (c *Client) listen(before string) (*redirect, error) {
	var ports []string
	if u, err := url.Parse(before); err == nil && before != "" {
		ports = append(ports, u.Port())
	}
	fixed := c.o.Server.Ringfence.OAuth.Port
	if fixed != 0 {
		ports = []string{strconv.Itoa(fixed)}
	} else {
		ports = append(ports, "0")
	}
	var l net.Listener
	var err error
	for _, p := range ports {
		if l, err = ipc.ListenTCP("127.0.0.1:"+p, nil); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the browser to come back: %w", err)
	}
	b := &redirect{host: l.Addr().String(), l: l, state: make(chan string, 1), said: make(chan reply, 1)}
	b.uri = "http://" + b.host + callback
	b.srv = &http.Server{
		Handler: b, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	b.srv.SetKeepAlivesEnabled(false)
	go func() { _ = b.srv.Serve(&few{Listener: l, left: maxAnswers}) }()
	return b, nil
}

// few is a listener that takes a bounded number of connections.
type few struct {
	net.Listener
	left int
}

// Accept implements [net.Listener].
func (f *few) Accept() (net.Conn, error) {
	if f.left == 0 {
		return nil, errors.New("too many connections")
	}
	f.left--
	return f.Listener.Accept()
}

func (b *redirect) close() { _ = b.srv.Close() }

// expect says which state the next answer has.
func (b *redirect) expect(state string) {
	select {
	case <-b.state:
	default:
	}
	b.state <- state
}

// wait returns the answer that has the state.
func (b *redirect) wait(ctx context.Context) (reply, error) {
	select {
	case s := <-b.said:
		return s, nil
	case <-ctx.Done():
		return reply{}, errors.New("nobody agreed in time")
	}
}

// ServeHTTP takes in the answer. One with another state than ours is no answer, and we
// go on waiting: whoever sends it does not end the login.
func (b *redirect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	query, err := url.ParseQuery(r.URL.RawQuery)
	once := err == nil
	for _, values := range query {
		once = once && len(values) == 1
	}
	if r.Method != http.MethodGet || r.URL.Path != callback || r.Host != b.host || !once || len(r.URL.RawQuery) > maxToken || !b.ours(query.Get("state")) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("This is no answer to a login that ringfence waits for.\n"))
		return
	}
	b.said <- reply{query}
	_, _ = w.Write([]byte("ringfence has the answer. You can close this page; the terminal says how it went.\n"))
}

// ours reports whether state is the one that is waited for, which it is once.
func (b *redirect) ours(state string) bool {
	select {
	case want := <-b.state:
		if subtle.ConstantTimeCompare([]byte(want), []byte(state)) == 1 {
			return true
		}
		b.state <- want
	default:
	}
	return false
}
