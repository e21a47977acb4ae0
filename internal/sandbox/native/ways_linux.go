package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/entrance"
)

// entering is what a stage is told of the ways of its box: see [sandbox.Ways].
type entering struct {
	proxy, resolver int
	tools           int // 0 for none
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
	e.proxy, e.resolver, e.tools = int(w.Proxy), int(w.Resolver), int(w.Tools)
	for _, p := range w.Ports {
		e.ports = append(e.ports, int(p))
	}
	for _, l := range w.Beyond() {
		e.local = append(e.local, local{string(l.Addr().AsSlice()), l.Bits()})
	}
	return e
}

func (e *entering) visit(c *coder) {
	c.integer(&e.proxy)
	c.integer(&e.resolver)
	c.integer(&e.tools)
	list(c, &e.ports, c.integer)
	list(c, &e.local, func(l *local) {
		c.str(&l.address)
		c.integer(&l.bits)
	})
}

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
		kinds, fds, err := entrance.Open(e.proxy, e.resolver, e.tools, e.ports)
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
		b.listening.Add(o.kinds[i], os.NewFile(uintptr(fd), "way"))
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
