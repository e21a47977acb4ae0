package readback

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Network is what the kernel says about a network namespace.
type Network struct {
	Interfaces []string       // their names
	Local      []netip.Prefix // addresses that are the namespace's own, beyond single ones and 127.0.0.0/8
	// Routes are those that lead anywhere else, as text.
	Routes []string
	// Listening are "tcp" or "udp", and the address that connections and datagrams come to.
	Listening []Listener
}

// A Listener is a socket of TCP that listens, or one of UDP.
type Listener struct {
	Protocol string
	At       netip.AddrPort
}

func (l Listener) String() string { return l.Protocol + " " + l.At.String() }

// The files under /proc/<pid>/net, proc_pid_net(5), and the columns of sockets there.
const (
	tcpListen = "0A" // TCP_LISTEN of include/net/tcp_states.h
	tcpClose  = "07" // TCP_CLOSE, the state of a UDP socket that is not connected
	rtfLocal  = 1 << 31
	rtfReject = 0x200 // include/uapi/linux/route.h
)

// parseInterfaces reads net/dev.
func parseInterfaces(text string) (names []string, err error) {
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(line, ":")
		if ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("net/dev: no interface in %q", text)
	}
	return names, nil
}

// parseTrie reads net/fib_trie, which shows the tables of IPv4, the same ranges under both.
func parseTrie(text string) (n Network, err error) {
	seen := map[string]bool{}
	at := netip.Addr{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "|--":
			if at, err = netip.ParseAddr(words[1]); err != nil {
				return n, fmt.Errorf("net/fib_trie: %w", err)
			}
		case len(words) >= 3 && words[0][0] == '/' && at.IsValid():
			bits, err := strconv.Atoi(words[0][1:])
			if err != nil {
				return n, fmt.Errorf("net/fib_trie: line %q", line)
			}
			p, kind := netip.PrefixFrom(at, bits), words[2]
			if seen[p.String()+kind] {
				continue
			}
			seen[p.String()+kind] = true
			n.add(p, kind == "LOCAL", kind == "BROADCAST" || kind == "UNREACHABLE")
		}
	}
	return n, nil
}

// add sorts one range in.
func (n *Network) add(p netip.Prefix, local, nowhere bool) {
	switch {
	case nowhere, local && (p.IsSingleIP() || p.Addr().IsLoopback()):
	case local:
		n.Local = append(n.Local, p)
	default:
		n.Routes = append(n.Routes, p.String())
	}
}

// parseRoutes6 reads net/ipv6_route: destination and length, source and length, next hop,
// metric, two counts, flags, interface.
func parseRoutes6(text string) (n Network, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 10 {
			return n, fmt.Errorf("net/ipv6_route: line %q", line)
		}
		raw, err := hex.DecodeString(words[0])
		bits, err1 := strconv.ParseUint(words[1], 16, 8)
		flags, err2 := strconv.ParseUint(words[8], 16, 32)
		to, ok := netip.AddrFromSlice(raw)
		if err != nil || err1 != nil || err2 != nil || !ok || !to.Is6() {
			return n, fmt.Errorf("net/ipv6_route: line %q", line)
		}
		n.add(netip.PrefixFrom(to, int(bits)), flags&rtfLocal != 0, flags&rtfReject != 0)
	}
	return n, nil
}

// parseSockets reads net/tcp, net/tcp6, net/udp or net/udp6.
func parseSockets(protocol, text string) (all []Listener, err error) {
	header := true
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if header {
			header = false
			continue
		}
		if len(words) < 4 {
			return nil, fmt.Errorf("net/%s: line %q", protocol, line)
		}
		if words[3] != tcpListen && (words[3] != tcpClose || !strings.HasPrefix(protocol, "udp")) {
			continue
		}
		host, port, _ := strings.Cut(words[1], ":")
		raw, err := hex.DecodeString(host)
		n, err1 := strconv.ParseUint(port, 16, 16)
		if err != nil || err1 != nil || len(raw) != 4 && len(raw) != 16 {
			return nil, fmt.Errorf("net/%s: line %q", protocol, line)
		}
		for i := 0; i < len(raw); i += 4 { // words of the processor's own order
			binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
		}
		to, _ := netip.AddrFromSlice(raw)
		all = append(all, Listener{strings.TrimSuffix(protocol, "6"), netip.AddrPortFrom(to, uint16(n))})
	}
	return all, nil
}
