package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Listen opens the sockets of a box, in whose network we are: those of proxy and resolver,
// and for each of ports all addresses. Where a box has no IPv6 it has none of these either.
// Ports that are ours stay ours.
func Listen(ctx context.Context, ports []uint16) (Sockets, error) {
	var s Sockets
	var config net.ListenConfig
	listen := func(to *[]net.Listener, network, host string, port uint16) error {
		l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			*to = append(*to, l)
		}
		return err
	}
	err := errors.Join(
		listen(&s.Proxy, "tcp4", "127.0.0.1", ProxyPort),
		lenient(listen(&s.Proxy, "tcp6", "::1", ProxyPort)),
		listen(&s.Resolver, "tcp4", "127.0.0.1", ResolverPort))
	p, packetErr := config.ListenPacket(ctx, "udp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(ResolverPort)))
	if packetErr == nil {
		s.Packets = append(s.Packets, p)
	}
	err = errors.Join(err, packetErr)
	for _, port := range Direct(ports) {
		err = errors.Join(err, listen(&s.Direct, "tcp4", "0.0.0.0", port), lenient(listen(&s.Direct, "tcp6", "::", port)))
	}
	if err != nil {
		return Sockets{}, errors.Join(fmt.Errorf("opening the ways of a box: %w", err), s.Close())
	}
	return s, nil
}

// Direct returns those of ports, sorted, that are not ours and so can be connected to
// straight.
func Direct(ports []uint16) []uint16 {
	all := slices.Clone(ports)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(p uint16) bool { return p == 0 || p == ProxyPort || p == ResolverPort || p == ToolsPort })
}

// lenient drops the error of a machine without IPv6.
func lenient(err error) error {
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// FromFiles makes Sockets of descriptors that were opened in a box. It closes them.
func FromFiles(proxy, resolver, packets, direct []*os.File) (Sockets, error) {
	var s Sockets
	var wrong []error
	streams := func(to *[]net.Listener, files []*os.File) {
		for _, f := range files {
			l, err := net.FileListener(f)
			if wrong = append(wrong, err, f.Close()); err == nil {
				*to = append(*to, l)
			}
		}
	}
	streams(&s.Proxy, proxy)
	streams(&s.Resolver, resolver)
	streams(&s.Direct, direct)
	for _, f := range packets {
		p, err := net.FilePacketConn(f)
		if wrong = append(wrong, err, f.Close()); err == nil {
			s.Packets = append(s.Packets, p)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return Sockets{}, errors.Join(fmt.Errorf("taking the ways of a box: %w", err), s.Close())
	}
	return s, nil
}
