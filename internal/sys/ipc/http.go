package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// ErrElsewhere marks an address that is not one of this machine's own.
var ErrElsewhere = errors.New("it is not on this machine")

// Bounds of connections that speak HTTP.
const (
	maxHTTPConns  = 300 // to one host
	maxHTTPHeader = 64 << 10
)

// HTTP returns what carries HTTP requests to programs of this machine: to loopback
// addresses, or to the Unix socket at the absolute path socket, whatever host a URL
// names, if that is not "". Names are not looked up; "localhost" is the two loopback
// addresses. Everything else is [ErrElsewhere], and nothing is sent.
//
// It uses no proxy, asks for no compression and undoes none, and follows no
// redirects. CloseIdleConnections of [http.Client] lets its connections go.
func HTTP(socket string) http.RoundTripper {
	dial := dialLoopback
	if socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, socket) }
	}
	return &http.Transport{
		DialContext: dial, DisableCompression: true, MaxConnsPerHost: maxHTTPConns, MaxIdleConnsPerHost: 32,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: maxHTTPHeader,
	}
}

func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	hosts, port, err := loopback(address)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	var all []error
	for _, host := range hosts {
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(host, port))
		if err == nil {
			return conn, nil
		}
		all = append(all, err)
	}
	return nil, all[0]
}

// loopback returns the addresses, as text, that a host:port may lead to.
func loopback(address string) (hosts []string, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	if host == "localhost" {
		return []string{"127.0.0.1", "::1"}, port, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" || !ip.Unmap().IsLoopback() {
		return nil, "", fmt.Errorf("connecting to %q: %w", host, ErrElsewhere)
	}
	return []string{ip.Unmap().String()}, port, nil
}
