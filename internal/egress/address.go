package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"ringfence/internal/act/weburl"
)

// Bounds of a connection to a server.
const (
	lookUpWait  = 10 * time.Second
	dialWait    = 10 * time.Second // for each address
	maxAttempts = 4                // addresses of a name that are tried
	maxAnswers  = 64               // addresses of a name that are checked
)

// An addressError says that a host leads where nothing may go.
type addressError struct {
	host weburl.Host
	addr netip.Addr // the zero Addr where the name itself is refused
	why  string
}

// Error says what is at fault, and what a person can do about it.
func (e *addressError) Error() string {
	if !e.addr.IsValid() {
		return fmt.Sprintf("%s %s", e.host, e.why)
	}
	return fmt.Sprintf("%s leads to %s, which %s", e.host, e.addr, e.why)
}

// A dialer connects to what was decided, and nowhere else.
type dialer struct {
	net  Network
	told *telling
	now  func() time.Time
	// unnamed says that no decision named what is connected to: settings, or a registry did,
	// and an address that is not of the public internet must be one of net.Private.
	unnamed bool
}

// check returns why a, to which host leads, may not be connected to. What a decision
// named as an address was decided as one.
func (d dialer) check(host weburl.Host, a netip.Addr, named bool) error {
	switch as := weburl.AddrHost(a); {
	case as.Metadata():
		return &addressError{host, a, "is a metadata service, which nothing in a box may reach"}
	case !weburl.Special(a) || named:
		return nil
	case slices.ContainsFunc(d.net.Private, func(p netip.Prefix) bool { return p.Contains(a.Unmap().WithZone("")) }):
		return nil
	}
	return &addressError{host, a, `is not of the public internet: if it may be reached, name its range in "private" of "network" in the configuration`}
}

// addresses looks host up, once, and returns what was checked. All of an answer are
// checked, because a later connection could take any.
func (d dialer) addresses(ctx context.Context, host weburl.Host) ([]netip.Addr, error) {
	if a, ok := host.Addr(); ok {
		return []netip.Addr{a}, d.check(host, a, !d.unnamed)
	}
	if host.Metadata() {
		return nil, &addressError{host: host, why: "is a metadata service, which nothing in a box may reach"}
	}
	if host.String() == "localhost" { // RFC 6761 §6.3: never looked up, and what decided on it named it
		four := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		return []netip.Addr{four, netip.IPv6Loopback()}, d.check(host, four, !d.unnamed)
	}
	if err := d.told.look(host, d.now()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpWait)
	defer cancel()
	var r Resolver = net.DefaultResolver
	if d.net.Resolver != nil {
		r = d.net.Resolver
	}
	// The final dot keeps search domains of the machine out of it.
	found, err := r.LookupNetIP(ctx, "ip", host.String()+".")
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", host, err)
	}
	if len(found) == 0 || len(found) > maxAnswers {
		return nil, fmt.Errorf("looking up %s: %d addresses, want 1 to %d", host, len(found), maxAnswers)
	}
	for i, a := range found {
		found[i] = a.Unmap().WithZone("")
		if err := d.check(host, found[i], false); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// dial connects to host and port, at one of its checked addresses. The address is the
// zero Addr where a proxy connects for us: it looks the name up.
func (d dialer) dial(ctx context.Context, host weburl.Host, port uint16) (net.Conn, netip.Addr, error) {
	if d.net.Proxy != nil {
		conn, err := d.throughProxy(ctx, host, port)
		return conn, netip.Addr{}, err
	}
	found, err := d.addresses(ctx, host)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	var errs error
	for _, a := range found[:min(len(found), maxAttempts)] {
		one := net.Dialer{Timeout: dialWait, KeepAlive: 30 * time.Second}
		conn, err := one.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, a, nil
		}
		errs = errors.Join(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, netip.Addr{}, fmt.Errorf("connecting to %s: %w", host.WithPort(port), errs)
}

// throughProxy has the proxy of the machine connect. Names go to it as they are, but
// what is refused by its text is refused.
func (d dialer) throughProxy(ctx context.Context, host weburl.Host, port uint16) (net.Conn, error) {
	if _, ok := host.Addr(); ok || host.Metadata() {
		if _, err := d.addresses(ctx, host); err != nil {
			return nil, err
		}
	}
	if err := d.told.look(host, d.now()); err != nil {
		return nil, err
	}
	p := d.net.Proxy
	addr := p.Host
	if p.Port() == "" {
		addr = net.JoinHostPort(p.Hostname(), "80")
	}
	one := net.Dialer{Timeout: dialWait}
	conn, err := one.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to the proxy %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	got, err := askProxy(conn, p, host.WithPort(port))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking the proxy %s for %s: %w", addr, host.WithPort(port), err)
	}
	return got, nil
}

// askProxy sends CONNECT and reads the answer.
func askProxy(conn net.Conn, proxy *url.URL, to string) (net.Conn, error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{}}
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		r.SetBasicAuth(u.Username(), password)
		r.Header["Proxy-Authorization"] = r.Header["Authorization"]
		delete(r.Header, "Authorization")
	}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	b := bufio.NewReaderSize(io.LimitReader(conn, maxProxyHead), 4<<10)
	answer, err := http.ReadResponse(b, r) //nolint:bodyclose // what follows is the tunnel
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New("it answered " + strconv.Itoa(answer.StatusCode))
	}
	if b.Buffered() > 0 {
		return nil, errors.New("it sent more than its answer")
	}
	return conn, nil
}

// maxProxyHead bounds the answer of a proxy, in bytes.
const maxProxyHead = 16 << 10
