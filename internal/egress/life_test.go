package egress

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/egress/dns"
)

// until waits for something that another goroutine does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

func (d *decider) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked)
}

// TestWaitsForAPerson: a request that somebody is asked about goes on once it is
// approved, and one whose program has gone is not asked about any more.
func TestWaitsForAPerson(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, nil, "escalate fetch http://"+at+"/", "escalate connect "+at)
	gone := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	_, _ = fmt.Fprintf(gone, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", at, at)
	until(t, "the first decision", func() bool { return r.count() == 1 })
	_ = gone.Close()
	c := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	_, _ = fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", at, at)
	until(t, "the second decision", func() bool { return r.count() == 2 })
	close(r.gate)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("%q %v", line, err)
	}
}

// TestHT29: where nobody can decide, nothing is let through, and what is under way is
// finished.
func TestHT29(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, nil, "allow *")
	r.fail = errors.New("the engine is gone")
	res, _, _ := r.ask(t, "GET http://"+at+"/ HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
	if got := body(t, res); res.StatusCode != 503 || !strings.Contains(got, `"code":"internal"`) {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	c := r.dial(t, bridge.KindDirect, "1.1.1.1:443")
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
	if err := r.stop(); err != nil || len(r.table.asked) > 0 {
		t.Errorf("%q %v", r.table.asked, err)
	}
}

// TestFlood: equal denials are decided a few times, and then counted to the last.
func TestFlood(t *testing.T) {
	r := newRig(t, nil)
	const n = 100
	for range n {
		if res, _, _ := r.ask(t, "GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n"); res.StatusCode != 403 {
			t.Fatal(res.Status)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	decided, counted := 0, 0
	for _, a := range r.decider.asked {
		var k int
		if _, number, ok := strings.Cut(a, " repeated "); ok {
			if _, err := fmt.Sscan(number, &k); err != nil {
				t.Fatal(err)
			}
			counted += k
			continue
		}
		decided++
	}
	if decided+counted != n || decided > n/2 {
		t.Errorf("%d decided, %d counted", decided, counted)
	}
}

// TestQuiet: of a quiet host the first denial is decided and the rest are counted; what a
// clause allows there passes.
func TestQuiet(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, func(o *Options) { o.Quiet = []string{"site.test"} }, "allow fetch http://"+at+"/allowed")
	ask := func(path string) int {
		res, _, _ := r.ask(t, "GET http://"+at+path+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
		return res.StatusCode
	}
	for range 20 {
		if got := ask("/report"); got != http.StatusForbidden {
			t.Fatal(got)
		}
	}
	if got := ask("/allowed"); got != http.StatusOK {
		t.Error(got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"fetch http://" + at + "/report", "fetch http://" + at + "/allowed", "fetch http://" + at + "/report repeated 19"}
	if !slices.Equal(r.decider.asked, want) {
		t.Errorf("%q", r.decider.asked)
	}
}

// TestIdle: a stream in which nothing moves ends, and its place is free again.
func TestIdle(t *testing.T) {
	tcp := raw(t)
	r := newRig(t, func(o *Options) { o.Limits = Limits{Idle: 50 * time.Millisecond, Connections: 1} }, "tunnel connect site.test:"+tcp)
	for range 2 {
		until(t, "a tunnel that ends", func() bool {
			c, err := r.try(t, bridge.KindProxy, "127.0.0.1:3128")
			if err != nil {
				return false
			}
			_, _ = fmt.Fprintf(c, "CONNECT site.test:%s HTTP/1.1\r\nHost: site.test\r\n\r\n", tcp)
			b, err := io.ReadAll(c)
			return err == nil && strings.HasPrefix(string(b), "HTTP/1.1 200")
		})
	}
}

// TestPlaces: what finds no place is closed, and what comes when nobody leaves does not wait.
func TestPlaces(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Connections, o.Limits.PlaceWait = 1, time.Millisecond }, "escalate connect site.test:1")
	c := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	_, _ = fmt.Fprintf(c, "CONNECT site.test:1 HTTP/1.1\r\nHost: site.test:1\r\n\r\n")
	until(t, "the decision", func() bool { return r.count() == 1 })
	other, err := r.try(t, bridge.KindProxy, "127.0.0.1:3128")
	if err != nil {
		return // it was closed before it had said what it is
	}
	if b, err := io.ReadAll(other); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q %v", b, err)
	}
}

// TestPlacesWait: many more connections at once than there are places are all carried, as
// others end.
func TestPlacesWait(t *testing.T) {
	tcp := raw(t)
	r := newRig(t, func(o *Options) { o.Limits.Connections, o.Limits.PlaceWait = 2, 20*time.Second }, "tunnel connect site.test:"+tcp)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			c, err := r.try(t, bridge.KindProxy, "127.0.0.1:3128")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = fmt.Fprintf(c, "CONNECT site.test:%s HTTP/1.1\r\nHost: site.test\r\n\r\n", tcp)
			head := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 200" {
				t.Errorf("%q %v", head, err)
			}
		})
	}
	all.Wait()
}

// TestDirect: a name is looked up in the box, and a connection to its address is one to
// that name.
func TestDirect(t *testing.T) {
	tcp := raw(t)
	r := newRig(t, nil, "allow resolve site.test", "tunnel connect site.test:"+tcp)
	c := r.dial(t, bridge.KindResolver, "127.0.0.1:53")
	ask := func(name string, kind byte) []byte {
		q := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for l := range strings.SplitSeq(name, ".") {
			q = append(append(q, byte(len(l))), l...)
		}
		q = append(q, 0, 0, kind, 0, 1)
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		a := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask("evil.test", 1); a[3]&15 != dns.Refused || a[7] != 0 {
		t.Errorf("%x", a)
	}
	if a := ask("Site.test", byte(dns.TypeHTTPS)); a[3]&15 != dns.NoError || a[7] != 0 {
		t.Errorf("%x", a)
	}
	for _, kind := range []byte{1, 28} {
		a := ask("site.test", kind)
		addr, ok := netip.AddrFromSlice(a[len(a)-map[byte]int{1: 4, 28: 16}[kind]:])
		if !ok || a[7] != 1 {
			t.Fatalf("%x", a)
		}
		d := r.dial(t, bridge.KindDirect, netip.AddrPortFrom(addr, mustPort(t, tcp)).String())
		_, _ = d.Write([]byte("hi"))
		if b, err := io.ReadAll(d); err != nil || string(b) != "raw true\n" {
			t.Errorf("%s: %q %v", addr, b, err)
		}
	}
	if len(r.table.asked) != 2 {
		t.Errorf("%q", r.table.asked)
	}
}

func mustPort(t *testing.T, s string) uint16 {
	var p uint16
	if _, err := fmt.Sscan(s, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHostile: ten thousand connections that say nothing sensible leave nothing behind.
func TestHostile(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.HeadWait = 200 * time.Millisecond; o.Limits.Connections = 64 }, "allow connect site.test:443")
	before := runtime.NumGoroutine()
	texts := []string{
		"", "x", "\n", "{}\n", `{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\n",
		`{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\n\x05\xff", `{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\n\x05\x01\x00\x05\x01\x00\x03\xff",
		`{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\nCONNECT site.test:443 HTTP/1.1\r\nHost: a\r\n\r\n\x16\x03\x01\xff\xff",
		`{"v":1,"kind":"dns","dst":"127.0.0.1:53","pid":0}` + "\n\xff\xff", `{"v":1,"kind":"direct","dst":"198.18.0.1:443","pid":0}` + "\n\x16",
		`{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\nGET http://" + strings.Repeat("a", 300) + " HTTP/1.1\r\n\r\n", strings.Repeat("a", 5000),
	}
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for n := range 1250 {
				c, err := net.Dial("unix", r.socket)
				if err != nil {
					continue // its queue is full
				}
				_, _ = c.Write([]byte(texts[(i+n)%len(texts)]))
				_ = c.Close()
			}
		})
	}
	work.Wait()
	until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// TestNET09: names beneath one domain tell little, and names that people chose pass.
func TestNET09(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tell := newTelling()
	look := func(name string) error {
		h, err := weburl.ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		return tell.look(h, now)
	}
	for _, name := range []string{"example.com", "www.example.com", "registry.npmjs.org", "files.pythonhosted.org", "d111111abcdef8.cloudfront.net", "my-project-staging-environment.pages.dev"} {
		if err := look(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	sent := 0
	for ; look(fmt.Sprintf("mfrggzdfmztwq2lknnwg23tpobyxe43uov3%d3ho6dz.evil.example", sent)) == nil; sent++ {
	}
	if sent > 12 {
		t.Errorf("%d names with data were looked up", sent)
	}
	for sent = 0; look(fmt.Sprintf("a%d.other.example", sent)) == nil; sent++ {
	}
	if sent != tellNames || look("a7.other.example") != nil {
		t.Errorf("%d names were looked up", sent)
	}
	if now = now.Add(tellFor + 1); look("new.other.example") != nil {
		t.Error("nothing is forgotten")
	}
}
