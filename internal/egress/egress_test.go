package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/bridge"
)

// A decider is a policy of lines: "allow connect host:port", "tunnel connect …",
// "escalate …", and "lend …". "*" at the end stands for anything.
type decider struct {
	rules    []string
	lend     []act.Loan
	fail     error
	gate     chan struct{} // what escalates waits for it
	seen     func(ending)  // each ending, if it is set
	leaveOut []string      // of offers of more than one version
	denies   []string      // rules that denials name besides
	message  string        // "out binary": a kind of message that is denied

	mu     sync.Mutex
	asked  []string
	open   map[string]bool
	ended  []string // "kind text: error", with what was carried
	labels []act.Label
	n      int
}

func (d *decider) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	var f facts
	if err := json.Unmarshal(r.Args, &f); err != nil {
		return act.Ticket{}, err
	}
	said := ""
	for i, e := range r.Direct {
		if i > 0 {
			said += ", "
		}
		said += string(e.Kind) + " " + e.Resource.Text
	}
	d.mu.Lock()
	if f.Repeated > 0 {
		said += fmt.Sprintf(" repeated %d", f.Repeated)
	}
	if f.Message != "" {
		said += " " + f.Direction + " " + f.Message
	}
	d.asked = append(d.asked, said)
	d.n++
	t := act.Ticket{ID: fmt.Sprint("s/", d.n), Code: act.CodePolicy, Rules: slices.Concat(d.denies, []string{"default"}), Reason: "denied: no clause allows it", Effects: r.Direct, Lend: d.lend}
	err := d.fail
	d.mu.Unlock()
	if err != nil {
		return act.Ticket{}, err
	}
	allowed := 0
	for _, e := range r.Direct {
		for _, rule := range d.rules {
			verb, what, _ := strings.Cut(rule, " ")
			head, any := strings.CutSuffix(what, "*")
			if what != e.String() && (!any || !strings.HasPrefix(e.String(), head) || special(e.Resource.Text)) {
				continue
			}
			if verb == "escalate" {
				select {
				case <-d.gate:
				case <-ctx.Done():
					return act.Ticket{Code: act.CodeNoAnswer}, ctx.Err()
				}
			}
			t.Filter.Tunnel = verb == "tunnel"
			allowed++
			break
		}
	}
	if r.Verb == act.VerbOffers && len(r.Direct) > 1 {
		t.Filter.LeaveOut = d.leaveOut
	}
	if allowed == len(r.Direct) && (d.message == "" || f.Direction+" "+f.Message != d.message) {
		t.Verdict, t.Code = act.Allow, ""
		d.mu.Lock()
		d.open[t.ID] = true
		d.mu.Unlock()
	}
	return t, nil
}

// special reports whether the host of an effect is an address that no clause but one
// which names it allows.
func special(text string) bool {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		text, _, _ = strings.Cut(rest, "/")
	}
	h, _, err := weburl.ParseHostPort(text)
	a, isAddr := h.Addr()
	return err == nil && isAddr && weburl.Special(a)
}

func (d *decider) Finish(_ context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open[t.ID] {
		return act.Reply{}, errors.New("finished twice, or never allowed")
	}
	delete(d.open, t.ID)
	var e ending
	if err := json.Unmarshal(o.Body, &e); err != nil {
		return act.Reply{}, err
	}
	if d.seen != nil {
		d.seen(e)
	}
	said := fmt.Sprintf("%s %d sent=%d received=%d", t.Effects[0], e.Status, e.Sent, e.Received)
	if o.Error != "" {
		said += ": " + o.Error
	}
	d.ended = append(d.ended, said)
	d.labels = append(d.labels, o.Labels...)
	return act.Reply{}, nil
}

// table is a resolver of a few names; what it was asked for is kept.
type table struct {
	names map[string]string // name to addresses, with commas

	mu    sync.Mutex
	asked []string
}

func (t *table) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	host = strings.TrimSuffix(host, ".")
	t.asked = append(t.asked, host)
	var out []netip.Addr
	for s := range strings.SplitSeq(t.names[host], ",") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		out = append(out, a)
	}
	return out, nil
}

// A rig is a way out with its socket, and what is behind it.
type rig struct {
	*decider
	*table
	socket string
	served *countedListener
	stop   func() error // ends Serve and returns its error
}

// A countedListener knows whether all that it accepted is closed.
type countedListener struct {
	net.Listener
	open sync.WaitGroup
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: conn, closed: sync.OnceFunc(l.open.Done)}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func newRig(t testing.TB, change func(*Options), rules ...string) *rig {
	t.Helper()
	r := &rig{
		decider: &decider{rules: rules, open: map[string]bool{}, gate: make(chan struct{})},
		table:   &table{names: map[string]string{"site.test": "127.0.0.1", "other.test": "127.0.0.1"}},
		socket:  filepath.Join(t.TempDir(), "s"),
	}
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Decider: r.decider, Network: Network{Resolver: r.table, Private: loopback}}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r.served = &countedListener{Listener: l}
	go func() { done <- Serve(ctx, r.served, o) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("Serve does not return")
		}
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if len(r.open) > 0 {
			t.Errorf("%d tickets were never finished", len(r.open))
		}
	})
	return r
}

// dial makes a connection as the bridge does.
func (r *rig) dial(t testing.TB, kind bridge.Kind, dst string) *net.UnixConn {
	t.Helper()
	c, err := r.try(t, kind, dst)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// try is dial, where there may be no place.
func (r *rig) try(t testing.TB, kind bridge.Kind, dst string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := bridge.Dial(ctx, r.socket, bridge.Preamble{Kind: kind, Dst: netip.MustParseAddrPort(dst), PID: 7})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, c.SetDeadline(time.Now().Add(20 * time.Second))
}

// ask sends text to the proxy and returns the first reply.
func (r *rig) ask(t testing.TB, text string) (*http.Response, *bufio.Reader, net.Conn) {
	t.Helper()
	c := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	b := bufio.NewReader(c)
	method, _, _ := strings.Cut(text, " ")
	res, err := http.ReadResponse(b, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return res, b, c
}

// port is that of a server.
func port(s *httptest.Server) string {
	_, p, _ := net.SplitHostPort(s.Listener.Addr().String())
	return p
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	var b strings.Builder
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
