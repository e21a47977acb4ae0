package mitm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

// A Dial connects to "host:port": to an address of that name that was checked, for the
// host and port that were decided.
type Dial func(ctx context.Context, address string) (net.Conn, error)

// TransportOptions say how upstream is reached. Dial must be set.
type TransportOptions struct {
	Dial   Dial
	Roots  *x509.CertPool // whom servers are verified by; nil: the roots of the machine
	Limits Limits
}

const (
	maxReplyHead = 128 << 10
	// continueWait is how long upstream may take to ask for a body that the client holds
	// back until then.
	continueWait = 10 * time.Second
	maxIdleConns = 64
	perHost      = 16
)

// NewTransport returns what sends requests over HTTP/1.1 and HTTP/2. Each server is
// verified for the host of the URL (M3); it follows no redirect, uses no proxy of the
// environment, and unpacks nothing. Connections are kept for requests to the same host
// and port only. CloseIdleConnections ends those that are kept.
func NewTransport(o TransportOptions) *http.Transport {
	l := o.Limits.withDefaults()
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return o.Dial(ctx, address) },
		TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(maxIdleConns)},
		TLSHandshakeTimeout:    l.Handshake,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    perHost,
		IdleConnTimeout:        l.Idle,
		ExpectContinueTimeout:  continueWait,
		MaxResponseHeaderBytes: maxReplyHead,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     maxUploads,
			MaxReceiveBufferPerConnection: 2 * maxUploads,
			SendPingTimeout:               l.Idle,
		},
	}
}
