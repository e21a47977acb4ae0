package mitm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"ringfence/internal/act/weburl"
)

const (
	httpsPort  = 443
	protoH2    = "h2"
	protoH1    = "http/1.1"
	maxDetail  = 300
	maxUploads = 1 << 20 // bytes that one HTTP/2 stream may send ahead of its reader
)

// refusal returns a RefusedError with a formatted detail that is fit to be recorded.
func refusal(code, format string, a ...any) *RefusedError {
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, fmt.Sprintf(format, a...))
	return &RefusedError{Code: code, Detail: text[:min(len(text), maxDetail)]}
}

// errServed ends the loop of a server whose one connection is over.
var errServed = errors.New("the connection is over")

// Serve speaks TLS with the program at the other end of conn, whose first bytes are
// its ClientHello, as the server o.Host, and has every request inside handled. It
// returns when the connection is over and every handler has returned; it closes conn.
// The error is a *RefusedError if the connection, or something in it, was not let through.
func Serve(ctx context.Context, conn net.Conn, o Options) error {
	defer conn.Close()
	if o.Port == 0 {
		o.Port = httpsPort
	}
	o.Limits = o.Limits.withDefaults()
	if o.Host.IsZero() || o.Minter == nil || o.Handler == nil {
		return errors.New("opening TLS: no host, minter or handler is given")
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	secure, err := handshake(ctx, conn, o)
	if err != nil {
		return err
	}
	all := &refusals{tell: o.Refused}
	o.Refused = all.add
	o.serve(ctx, secure)
	return all.err()
}

// refusals are what a connection was not let do.
type refusals struct {
	tell  func(RefusedError)
	mu    sync.Mutex
	first *RefusedError
	n     int
}

func (r *refusals) add(why RefusedError) {
	r.mu.Lock()
	if r.n++; r.first == nil {
		r.first = &why
	}
	r.mu.Unlock()
	if r.tell != nil {
		r.tell(why)
	}
}

// err is the first, and how many more there were.
func (r *refusals) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.n {
	case 0:
		return nil
	case 1:
		return r.first
	}
	return refusal(r.first.Code, "%.200s (and %d more)", r.first.Detail, r.n-1)
}

// handshake answers the ClientHello with a leaf for o.Host, if that is who it is for.
func handshake(ctx context.Context, conn net.Conn, o Options) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limits.Handshake)
	defer cancel()
	var refused error
	server := tls.Server(conn, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{protoH2, protoH1},
		SessionTicketsDisabled: true, // a ticket would outlive what the connection was decided for
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if refused = checkName(hello.ServerName, o.Host); refused != nil {
				return nil, refused
			}
			name := o.Host.String()
			if addr, ok := o.Host.Addr(); ok {
				name = addr.String()
			}
			leaf, err := o.Minter.Leaf(ctx, name)
			if err != nil {
				refused = fmt.Errorf("minting a certificate for %s: %w", name, err)
			}
			return leaf, refused
		},
	})
	if err := server.HandshakeContext(ctx); err != nil {
		if refused != nil {
			return nil, refused
		}
		return nil, refusal("tls", "the TLS handshake for %s failed: %v", o.Host, err)
	}
	return server, nil
}

// checkName holds the name of a ClientHello against the host of its connection. An
// address is never named there (RFC 6066 §3).
func checkName(sni string, host weburl.Host) error {
	if _, isAddr := host.Addr(); isAddr && sni == "" {
		return nil
	}
	if sni == "" {
		return refusal("sni", "the ClientHello names no server; the connection is for %s", host)
	}
	if named, err := weburl.ParseHost(sni); err != nil || named != host {
		return refusal("sni", "the ClientHello is for %q, the connection for %s", sni, host)
	}
	return nil
}

// serve has the requests of secure handled until it is over.
func (o Options) serve(ctx context.Context, secure *tls.Conn) {
	state := secure.ConnectionState()
	var conn net.Conn = secure
	var protocols http.Protocols
	protocols.SetHTTP2(state.NegotiatedProtocol == protoH2)
	if !protocols.HTTP2() {
		protocols.SetHTTP1(true)
		conn = Strict(secure, o.Limits, o.Refused)
	}
	in := &inside{o: o, tls: &state}
	single := &single{conn: conn, over: make(chan struct{})}
	server := &http.Server{
		Handler:                      in,
		Protocols:                    &protocols,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            o.Limits.Head,
		IdleTimeout:                  o.Limits.Idle,
		MaxHeaderBytes:               o.Limits.HeadBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          int(o.Limits.Streams),
			MaxReceiveBufferPerConnection: 2 * maxUploads,
			MaxReceiveBufferPerStream:     maxUploads,
			WriteByteTimeout:              o.Limits.Idle,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				single.end()
			}
		},
	}
	_ = server.Serve(single) // errServed
	in.handlers.end()
	_ = server.Close()
}

// single is a listener with one connection.
type single struct {
	mu   sync.Mutex
	conn net.Conn
	over chan struct{}
	once sync.Once
}

func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	conn := s.conn
	s.conn = nil
	s.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-s.over
	return nil, errServed
}

func (s *single) end() { s.once.Do(func() { close(s.over) }) }

func (s *single) Close() error { return nil }

func (s *single) Addr() net.Addr { return address{} }

// address is where a single listens: nowhere.
type address struct{}

func (address) Network() string { return "inside" }
func (address) String() string  { return "inside" }

// inside checks that a request is for the host of its connection (M1).
type inside struct {
	o        Options
	tls      *tls.ConnectionState
	handlers running
}

// running are the handlers of a connection. One can be scheduled when the connection is
// over already: it does not begin any more.
type running struct {
	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// begin reports whether a handler may begin; it then calls all.Done at its end.
func (r *running) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.all.Add(1)
	}
	return !r.over
}

// end returns when all handlers have, and lets none begin.
func (r *running) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.all.Wait()
}

func (in *inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !in.handlers.begin() {
		return
	}
	defer in.handlers.all.Done()
	if r.ProtoMajor == 2 && r.ContentLength > 0 && r.ContentLength <= maxLeft {
		defer takeLeft(w, r.Body)
	}
	status, why := in.check(r)
	if why != nil {
		in.o.Refused(*why)
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		http.Error(w, why.Detail, status)
		return
	}
	host := in.o.Host.String()
	if in.o.Port != httpsPort {
		host = in.o.Host.WithPort(in.o.Port)
	}
	r.Host, r.URL.Scheme, r.URL.Host, r.TLS = host, "https", host, in.tls
	delete(r.Header, "Host")
	if r.ProtoMajor == 2 {
		w = stream{w}
		defer w.Header().Del("Connection") // of a reply that is empty
	}
	in.o.Handler.ServeHTTP(w, r)
}

// What a request may still have to say when it is answered, and for how long it is listened to.
const (
	maxLeft  = 256 << 10
	leftWait = time.Second
)

// takeLeft reads what is left of a small body, so that the stream ends with its reply: some
// clients lose a reply that is followed by a reset, as RFC 9113 §8.1 has it for a body that
// nobody wants.
func takeLeft(w http.ResponseWriter, body io.Reader) {
	if http.NewResponseController(w).SetReadDeadline(time.Now().Add(leftWait)) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(body, maxLeft)) // who has gone says no more
	}
}

// A stream is a reply of HTTP/2, which ends itself and not its connection: a "Connection:
// close" of its header would have net/http give the other streams up, and some clients
// this one.
type stream struct{ http.ResponseWriter }

func (s stream) WriteHeader(status int) {
	s.Header().Del("Connection")
	s.ResponseWriter.WriteHeader(status)
}

func (s stream) Write(b []byte) (int, error) {
	s.Header().Del("Connection")
	return s.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (s stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// check returns why r is refused, with the status that says so.
func (in *inside) check(r *http.Request) (int, *RefusedError) {
	named, port, err := weburl.ParseHostPort(r.Host)
	if port == 0 {
		port = httpsPort
	}
	switch {
	case r.Host == "" || err != nil:
		return http.StatusBadRequest, refusal("host", "the request names no host that can be read: %q", r.Host)
	case named != in.o.Host || port != in.o.Port:
		return http.StatusMisdirectedRequest, refusal("host", "the request is for %q, the connection for %s", r.Host, in.o.Host.WithPort(in.o.Port))
	case !sameHosts(r.Header["Host"], r.Host):
		return http.StatusBadRequest, refusal("host", "the request names two hosts")
	case r.Method == http.MethodConnect:
		return http.StatusMethodNotAllowed, refusal("host", "CONNECT inside a connection")
	case !strings.HasPrefix(r.RequestURI, "/"):
		return http.StatusBadRequest, refusal("host", "the target %.80q of a request is not a path", r.RequestURI)
	}
	err = checkTarget(r.RequestURI)
	if !isToken(r.Method) {
		err = refusal("head", "the method of a request cannot be read")
	}
	for name := range r.Header {
		if likeFraming(strings.ToLower(name)) {
			err = refusal("head", "some servers read %q as another header", name)
		}
	}
	if why, ok := errors.AsType[*RefusedError](err); ok {
		return http.StatusBadRequest, why
	}
	return 0, nil
}

// sameHosts reports whether every header is the host that the request names.
func sameHosts(headers []string, host string) bool {
	for _, h := range headers {
		if !strings.EqualFold(h, host) {
			return false
		}
	}
	return true
}
