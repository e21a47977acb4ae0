package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// entering is what a stage is told of the ways of its box: see [sandbox.Ways].
type entering struct {
	proxy, resolver int
	ports           []int
	local           []local
}

// A local is a range of addresses: 4 or 16 bytes, and how many bits of them count.
type local struct {
	address string
	bits    int
}

func enteringOf(w sandbox.Ways) (e entering) {
	if !w.Any() || w.Take == nil {
		return entering{}
	}
	e.proxy, e.resolver = int(w.Proxy), int(w.Resolver)
	for _, p := range w.Ports {
		e.ports = append(e.ports, int(p))
	}
	for _, l := range w.Local {
		e.local = append(e.local, local{string(l.Addr().AsSlice()), l.Bits()})
	}
	return e
}

func (e *entering) visit(c *coder) {
	c.integer(&e.proxy)
	c.integer(&e.resolver)
	list(c, &e.ports, c.integer)
	list(c, &e.local, func(l *local) {
		c.str(&l.address)
		c.integer(&l.bits)
	})
}

// The kinds of sockets that are handed out.
const (
	wayProxy = iota + 1
	wayResolver
	wayPacket
	wayDirect
)

// A handed is what a stage says of the sockets that it hands out: the kind of each.
type handed struct{ kinds []int }

func (o *handed) visit(c *coder) { list(c, &o.kinds, c.integer) }

// openWays makes the addresses of the box its own, listens, and hands the sockets out. It
// has what is needed for that until the box is confined.
func (s *stage) openWays() {
	e := s.plan.entering
	if e.proxy == 0 || s.plan.open {
		return
	}
	s.do("routes", func() error {
		for _, l := range e.local {
			if err := addLocal(l); err != nil {
				return err
			}
		}
		return nil
	})
	s.do("ways", func() error {
		kinds, fds, err := e.listen()
		defer closeFDs(fds)
		if err != nil {
			return err
		}
		b, err := encode(&handed{kinds})
		if err != nil {
			return err
		}
		return s.wire.send(frameWays, b, fds...)
	})
}

func (e entering) listen() (kinds, fds []int, err error) {
	add := func(kind int, to unix.Sockaddr, socket int) {
		if err != nil {
			return
		}
		fd, e := listenAt(to, socket)
		if _, six := to.(*unix.SockaddrInet6); six && (errors.Is(e, unix.EAFNOSUPPORT) || errors.Is(e, unix.EADDRNOTAVAIL)) {
			return // there is no IPv6
		}
		if err = e; e == nil {
			kinds, fds = append(kinds, kind), append(fds, fd)
		}
	}
	four := [4]byte{127, 0, 0, 1}
	six := [16]byte{15: 1}
	add(wayProxy, &unix.SockaddrInet4{Port: e.proxy, Addr: four}, unix.SOCK_STREAM)
	add(wayProxy, &unix.SockaddrInet6{Port: e.proxy, Addr: six}, unix.SOCK_STREAM)
	add(wayResolver, &unix.SockaddrInet4{Port: e.resolver, Addr: four}, unix.SOCK_STREAM)
	add(wayPacket, &unix.SockaddrInet4{Port: e.resolver, Addr: four}, unix.SOCK_DGRAM)
	for _, p := range e.ports {
		add(wayDirect, &unix.SockaddrInet4{Port: p}, unix.SOCK_STREAM)
		add(wayDirect, &unix.SockaddrInet6{Port: p}, unix.SOCK_STREAM)
	}
	return kinds, fds, err
}

// backlog is how many connections wait to be accepted.
const backlog = 512

func listenAt(to unix.Sockaddr, kind int) (int, error) {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// addLocal makes all addresses of l those of the loopback interface: "ip route add local
// RANGE dev lo" (rtnetlink(7)). Of IPv6, where there is none, nothing is made.
func addLocal(l local) error {
	family := byte(unix.AF_INET)
	scope := byte(unix.RT_SCOPE_HOST)
	if len(l.address) == 16 {
		family, scope = unix.AF_INET6, unix.RT_SCOPE_UNIVERSE
	}
	if len(l.address) != 4 && len(l.address) != 16 || l.bits < 0 || l.bits > 8*len(l.address) {
		return errors.New("the plan is malformed")
	}
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	// struct rtmsg: family, length of destination and source, TOS, table, protocol, scope,
	// type, flags.
	body := []byte{family, byte(l.bits), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, scope, unix.RTN_LOCAL, 0, 0, 0, 0}
	attribute := func(kind uint16, value []byte) {
		body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofRtAttr+len(value)))
		body = binary.NativeEndian.AppendUint16(body, kind)
		body = append(body, value...)
	}
	attribute(unix.RTA_DST, []byte(l.address))
	attribute(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, lo))
	err = routeRequest(unix.RTM_NEWROUTE, body)
	if family == unix.AF_INET6 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EACCES)) {
		return nil
	}
	return err
}

func loopbackIndex() (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r); err != nil {
		return 0, err
	}
	return r.Uint32(), nil
}

// routeRequest sends one request of rtnetlink(7) and waits until the kernel has done it.
func routeRequest(kind uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	m = append(m, 1, 0, 0, 0, 0, 0, 0, 0) // number and sender
	m = append(m, body...)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("an answer of %d bytes to a request for a route", n)
	}
	if e := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); e != 0 {
		return syscall.Errno(-e)
	}
	return nil
}

// taken keeps what a stage handed out.
func (b *builder) taken(fr frame) error {
	var o handed
	if err := decode(fr.payload, &o); err != nil {
		closeFDs(fr.fds)
		return err
	}
	if len(o.kinds) != len(fr.fds) || b.listening != nil || b.plan.entering.proxy == 0 {
		closeFDs(fr.fds)
		return errors.New("the stage handed out what nobody asked for")
	}
	b.listening = &sandbox.Listening{}
	for i, fd := range fr.fds {
		f := os.NewFile(uintptr(fd), "way")
		switch o.kinds[i] {
		case wayProxy:
			b.listening.Proxy = append(b.listening.Proxy, f)
		case wayResolver:
			b.listening.Resolver = append(b.listening.Resolver, f)
		case wayPacket:
			b.listening.Packets = append(b.listening.Packets, f)
		default:
			b.listening.Direct = append(b.listening.Direct, f)
		}
	}
	return nil
}

// handOut gives what listens to who asked for it.
func (b *builder) handOut() error {
	if b.plan.entering.proxy == 0 {
		return nil
	}
	if b.listening == nil {
		return errors.New("the stage has opened no ways")
	}
	l := *b.listening
	b.listening = nil
	return b.spec.Ways.Take(l)
}

// dropWays closes what was not handed out.
func (b *builder) dropWays() error {
	if b.listening == nil {
		return nil
	}
	return b.listening.Close()
}
