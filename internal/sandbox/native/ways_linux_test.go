package native

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

// knocker is a program for boxes: it knocks at all that may lead out, says what came of
// each, and that none of it took long.
const knocker = `
import socket, struct, time
def knock(what, f):
    began = time.time()
    try:
        said = f()
    except OSError as e:
        said = e.strerror or str(e)
    print(what, said if time.time() - began < 1 else "(late) " + str(said))
def tcp(family, to):
    def f():
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(5)
        s.connect(to)
        return s.recv(100).decode()
    return f
def udp(family, to):
    def f():
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.settimeout(5)
        s.connect(to)
        s.send(b"0123456789ab")
        return s.recv(100).decode()
    return f
four, six = socket.AF_INET, socket.AF_INET6
knock("proxy", tcp(four, ("127.0.0.1", 3128)))
knock("proxy6", tcp(six, ("::1", 3128)))
knock("resolver", tcp(four, ("127.0.0.1", 53)))
knock("packet", udp(four, ("127.0.0.1", 53)))
knock("direct", tcp(four, ("198.18.0.7", 443)))
knock("direct6", tcp(six, ("fd52:6633::7", 443)))
knock("another port", tcp(four, ("198.19.255.255", 444)))
knock("another port6", tcp(six, ("fd52:6633::7", 444)))
knock("beyond", tcp(four, ("198.20.0.1", 443)))
knock("internet", tcp(four, ("1.1.1.1", 443)))
knock("internet6", tcp(six, ("2606:4700::1111", 443)))
knock("metadata", tcp(four, ("169.254.169.254", 80)))
knock("quic", udp(four, ("198.18.0.7", 443)))
knock("quic6", udp(six, ("fd52:6633::7", 443)))
knock("udp", udp(four, ("1.1.1.1", 53)))
knock("multicast", udp(four, ("224.0.0.251", 5353)))
knock("raw", lambda: socket.socket(four, socket.SOCK_RAW, 1))
knock("icmp", lambda: socket.socket(four, socket.SOCK_DGRAM, 1))
knock("packets", lambda: socket.socket(17, socket.SOCK_RAW, 0x300))
knock("sctp", lambda: socket.socket(four, socket.SOCK_STREAM, 132))
knock("mptcp", lambda: socket.socket(four, socket.SOCK_STREAM, 262))
knock("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
def route():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    body = struct.pack("=BBBBBBBBI", four, 0, 0, 0, 254, 4, 253, 1, 0) + struct.pack("=HHI", 8, 4, 1)
    s.send(struct.pack("=IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
    e = struct.unpack("=i", s.recv(4096)[16:20])[0]
    raise OSError(-e, __import__("os").strerror(-e)) if e else OSError("added")
knock("netlink", route)
def low():
    socket.socket().bind(("127.0.0.1", 80))
    return "bound"
knock("port 80", low)
print(open("/run/ringfence/ca.pem").read(), open("/etc/resolv.conf").read().split()[1])
`

const knocked = `proxy proxy 127.0.0.1:3128
proxy6 proxy [::1]:3128
resolver resolver 127.0.0.1:53
packet 0123456789ab
direct direct 198.18.0.7:443
direct6 direct [fd52:6633::7]:443
another port Connection refused
another port6 Connection refused
beyond Network is unreachable
internet Network is unreachable
internet6 Network is unreachable
metadata Network is unreachable
quic Connection refused
quic6 Connection refused
udp Network is unreachable
multicast Network is unreachable
raw Operation not permitted
icmp Protocol not supported
packets Operation not permitted
sctp Protocol not supported
mptcp Protocol not supported
vsock Address family not supported by protocol
netlink Operation not permitted
port 80 Permission denied
roots 127.0.0.1
`

// answer says on each connection what it came to, and sends datagrams back.
func answer(t *testing.T, l sandbox.Listening) error {
	for name, files := range map[string][]*os.File{"proxy": l.Proxy, "resolver": l.Resolver, "direct": l.Direct} {
		for _, f := range files {
			s, err := net.FileListener(f)
			if err != nil {
				return err
			}
			t.Cleanup(func() { s.Close() })
			go func() {
				for {
					c, err := s.Accept()
					if err != nil {
						return
					}
					_, _ = fmt.Fprintf(c, "%s %s", name, c.LocalAddr())
					c.Close()
				}
			}()
		}
	}
	p, err := net.FilePacketConn(l.Packets[0])
	if err != nil {
		return err
	}
	t.Cleanup(func() { p.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(b[:n], from)
		}
	}()
	return l.Close()
}

func withWays(t *testing.T, take func(sandbox.Listening) error) sandbox.Spec {
	t.Helper()
	d := dir(t)
	if err := os.WriteFile(d+"/ca.pem", []byte("roots"), 0o644); err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		Argv: []string{"/usr/bin/python3", "-c", knocker}, Profile: sandbox.ProfileAgent, Network: sandbox.NetworkPolicy, Egress: d + "/way",
		Limits: sandbox.Limits{Wall: time.Minute},
		Placed: []sandbox.Placing{{Path: "/run/ringfence/ca.pem", File: d + "/ca.pem"}, {Path: "/etc/ssl/certs/none.pem", File: d + "/ca.pem", Usual: true}},
		Ways: sandbox.Ways{
			Proxy: 3128, Resolver: 53, Ports: []uint16{443}, Take: take,
			Local: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd52:6633::/64")},
		},
	}
}

// A box by policy has its ways, by which whoever holds the other ends is reached, and
// nothing else; what does not lead anywhere says so at once.
func TestWays(t *testing.T) {
	needPython(t)
	s := withWays(t, func(l sandbox.Listening) error { return answer(t, l) })
	var told sandbox.Report
	s.Confirm = func(r sandbox.Report) error { told = r; return nil }
	out := run(t, full(), s, "")
	if string(out.Stdout) != knocked {
		t.Errorf("%s%s, want\n%s", out.Stdout, out.Stderr, knocked)
	}
	for _, want := range []string{"interfaces: lo;", "198.18.0.0/15 fd52:6633::/64", "tcp 127.0.0.1:3128", "tcp [::]:443", "udp 127.0.0.1:53"} {
		if !told.Has(sandbox.LayerNetwork) || !strings.Contains(told.Evidence[sandbox.LayerNetwork], want) {
			t.Errorf("%s: %s", told, told.Evidence[sandbox.LayerNetwork])
		}
	}
}

// Where nobody takes them, or what is to be placed is not there, there is no box.
func TestWaysThatNobodyTakes(t *testing.T) {
	s := withWays(t, func(l sandbox.Listening) error { l.Close(); return os.ErrDeadlineExceeded })
	if _, err := full().Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "handing out the ways") {
		t.Errorf("%v", err)
	}
	s.Placed[0].File += "x"
	if _, err := full().Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "what is to be placed") {
		t.Errorf("%v", err)
	}
}
