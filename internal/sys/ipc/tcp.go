package ipc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrOpen marks an address that others than this machine can reach, without TLS.
var ErrOpen = errors.New("others than this machine can reach it, and without TLS they can read and change everything")

// ListenTCP listens at a host and port for programs of this machine; "localhost" is
// 127.0.0.1, and no other name is looked up. An address that other machines can reach
// is [ErrOpen], unless there is a certificate, under which clients then speak TLS 1.2 or
// newer. Whoever connects is still to be asked who it is.
func ListenTCP(address string, certificate *tls.Certificate) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %q is neither localhost nor the number of an address", address, host)
	}
	if certificate == nil && !ip.Unmap().IsLoopback() {
		return nil, fmt.Errorf("listening on %q: %w", address, ErrOpen)
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(ip.Unmap().String(), port))
	if err != nil {
		return nil, err // net says "listen tcp address"
	}
	if certificate == nil {
		return l, nil
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
}
