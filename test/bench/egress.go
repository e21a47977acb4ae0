package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/egress/mitm"
	"ringfence/test/rig"
)

// A web is a server of this process, and those who ask it: from a box of ours, from
// nowhere in particular, and from a box of srt, if that is installed.
type web struct {
	*scene
	at     string // "https://localhost:port"
	ca     string // file with whom it is verified by
	box    *exec.Cmd
	ours   *sysCaller
	direct *sysCaller
	srt    *sysCaller // nil: not installed
	name   string     // of srt
}

// webPolicy lets programs ask the server of the bench, request by request.
func webPolicy(at string) []string {
	return []string{"may run any program and read files anywhere", "may do anything in the workspace", "may fetch " + at + "/", "may fetch pages from any site"}
}

// ways measures what requests out of a box cost: each is decided, recorded on disk, and its
// TLS opened.
func ways(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(wayRows(ctx, b, h), h.Close())
}

func wayRows(ctx context.Context, b *bench, h *rig.Home) (err error) {
	w := &web{scene: &scene{Home: h}}
	stop, err := w.serve(h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if w.policy, err = h.Policy(ctx, webPolicy(w.at)...); err != nil {
		return err
	}
	conn, err := h.Connect(ctx) // so that the engine runs
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	end, err := w.start(ctx, b)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return err
	}
	for _, rows := range []func(context.Context, *bench, *web) error{held, requests, loads} {
		if err := rows(ctx, b, w); err != nil {
			return err
		}
	}
	return leafRow(ctx, b, w, conn)
}

// serve starts the server and has the home trust it.
func (w *web) serve(h *rig.Home) (stop func() error, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, serverTemplate(), serverTemplate(), key.Public(), key)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.at = fmt.Sprintf("https://localhost:%d", l.Addr().(*net.TCPAddr).Port)
	w.ca = filepath.Join(h.Work, "server.pem")
	config, err := json.Marshal(map[string]any{"network": map[string]any{"ca": []string{w.ca}, "private": []string{"127.0.0.0/8"}}})
	err = errors.Join(err,
		os.WriteFile(w.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o644), //nolint:gosec // boxes run as nobody
		os.WriteFile(filepath.Join(h.Own, "config.json"), config, 0o600))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}},
	}}
	go func() { _ = s.ServeTLS(l, "", "") }() // it ends with Close
	return s.Close, nil
}

func serverTemplate() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

// The lengths of bodies, in bytes.
const (
	smallBody = 200
	scanBody  = 10 << 10
	events    = 3
)

// answer is what the server does.
func answer(w http.ResponseWriter, r *http.Request) {
	switch what := r.URL.Path[1:]; what {
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range events {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			w.(http.Flusher).Flush()
		}
	default:
		var n int64
		if _, err := fmt.Sscan(what, &n); err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", fmt.Sprint(n))
		for n > 0 {
			k, err := w.Write(words[:min(n, int64(len(words)))])
			if n -= int64(k); err != nil {
				return
			}
		}
	}
}

// words are the text of every body.
var words = []byte(strings.Repeat("Nothing of this is a secret, and all of it is looked at. ", 1200))

// start starts those who ask.
func (w *web) start(ctx context.Context, b *bench) (end func() error, err error) {
	var ends []func() error
	end = func() error {
		var errs []error
		for _, f := range ends {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	bin := filepath.Join(w.Work, "asks")
	if err := rig.GoBuild(ctx, bin, "ringfence/test/bench/testdata/asks"); err != nil {
		return end, err
	}
	w.box = w.Command(ctx, "exec", "--ask", "never", "--policy", w.policy, "--profile", "agent", "--net", "policy", "--descriptors", "4096", "--", bin, w.ca)
	beside := exec.CommandContext(ctx, bin, w.ca)
	beside.Env = []string{"PATH=/usr/bin:/bin"}
	for _, one := range []struct {
		c    *exec.Cmd
		into **sysCaller
	}{{w.box, &w.ours}, {beside, &w.direct}, {w.insideSrt(ctx, b, bin), &w.srt}} {
		if one.c == nil {
			continue
		}
		caller, err := startCaller(one.c)
		if err != nil {
			return end, err
		}
		*one.into = caller
		ends = append(ends, caller.close)
		if err := caller.asks("get", 1, w.at+"/1"); err != nil {
			return end, fmt.Errorf("asking from %s: %w", one.c.Path, err)
		}
	}
	return end, nil
}

// insideSrt is bin in a box of srt that may reach the server; nil if there is none.
func (w *web) insideSrt(ctx context.Context, b *bench, bin string) *exec.Cmd {
	program := filepath.Join(b.peers, "node_modules", ".bin", "srt")
	settings := filepath.Join(w.Person, "srt.json")
	text, err := json.Marshal(map[string]any{
		"network":    map[string]any{"allowedDomains": []string{"localhost"}, "deniedDomains": []string{}},
		"filesystem": map[string]any{"denyRead": []string{}, "allowWrite": []string{w.Work}, "denyWrite": []string{}},
	})
	if err == nil {
		_, err = os.Stat(program)
	}
	if err == nil {
		err = os.WriteFile(settings, text, 0o600)
	}
	if err != nil {
		b.leftOut("requests beside srt: %v", err)
		return nil
	}
	c := exec.CommandContext(ctx, program, "--settings", settings, bin, w.ca)
	c.Dir, c.Env, w.name = w.Work, w.besideEnv(b, w.Person), "srt, which opens no TLS"
	return c
}

// startCaller starts c, a process of testdata/asks.
func startCaller(c *exec.Cmd) (*sysCaller, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = os.Stderr
	return &sysCaller{in, bufio.NewReader(out), c.Wait}, c.Start()
}

// asks has a process of testdata/asks do what, which must succeed.
func (c *sysCaller) asks(what string, times int, at string) error {
	if _, err := fmt.Fprintln(c.in, what, times, at); err != nil {
		return err
	}
	said, err := c.out.ReadString('\n')
	if err == nil && said != "done\n" {
		err = errors.New(strings.TrimSpace(said))
	}
	return err
}

// beside calls each with those that are there besides our box.
func (w *web) beside(each func(name string, c *sysCaller) error) error {
	err := each("without a box", w.direct)
	if err == nil && w.srt != nil {
		err = each(w.name, w.srt)
	}
	return err
}

// requests measures one request after the other.
func requests(ctx context.Context, b *bench, w *web) error {
	for _, c := range []struct {
		what, word string
		bytes      int
		target     bool
	}{
		{"a request over TLS that is opened, 200 bytes, HTTP/1.1", "get", smallBody, true},
		{"a request over TLS that is opened, 10 KB, HTTP/2", "get2", scanBody, false},
		{"a request over a new connection", "new", smallBody, false},
	} {
		at := fmt.Sprintf("%s/%d", w.at, c.bytes)
		err := w.beside(func(name string, other *sysCaller) error {
			mine, theirs, err := inTurn(ctx, b.times(400),
				func() error { return w.ours.asks(c.word, 1, at) }, func() error { return other.asks(c.word, 1, at) })
			if err != nil {
				return fmt.Errorf("%s, beside %s: %w", c.what, name, err)
			}
			r := latency(c.what, mine, name, theirs)
			r.Figure = fmt.Sprintf("added %s, p95 %s", span(mine.p50()-theirs.p50()), span(mine.at(0.95)-theirs.at(0.95)))
			if c.target && other == w.direct {
				r.Reach = "added ≤ 500 µs, p95 2 ms"
				r.Met = mine.p50()-theirs.p50() <= 500*time.Microsecond && mine.at(0.95)-theirs.at(0.95) <= 2*time.Millisecond
			}
			b.add(r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loads measures what goes through: one large body, many small ones, many at once.
func loads(ctx context.Context, b *bench, w *web) error {
	large := int64(float64(1<<30) * min(b.scale, 1))
	small, streams := max(16, int(10_000*min(b.scale, 1))), max(10, int(1000*min(b.scale, 1)))
	for _, c := range []struct {
		what, word, unit string
		times            int
		per              float64
		path             string
		windows          int
	}{
		{fmt.Sprintf("one body of %s", size(large)), "get", "MB", 1, float64(large) / 1e6, fmt.Sprint(large), 1},
		{fmt.Sprintf("%d requests, 16 at once", small), "many", "requests", small, float64(small), fmt.Sprint(smallBody), 3},
		{fmt.Sprintf("%d streams of events at once", streams), "streams", "streams", streams, float64(streams), "events", 3},
	} {
		err := w.beside(func(name string, other *sysCaller) error {
			var took [2][]float64
			for range c.windows {
				for i, who := range []struct {
					name   string
					caller *sysCaller
				}{{"from a box of ours", w.ours}, {name, other}} {
					if err := ctx.Err(); err != nil {
						return err
					}
					began := time.Now()
					if err := who.caller.asks(c.word, c.times, w.at+"/"+c.path); err != nil {
						return fmt.Errorf("%s, %s: %w", c.what, who.name, err)
					}
					took[i] = append(took[i], c.per/time.Since(began).Seconds())
				}
			}
			b.add(rates(c.what, c.unit, took[0], name, took[1]))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// held measures the memory of the way out for each connection that is kept.
func held(_ context.Context, b *bench, w *web) error {
	const n = 500
	before, err := anonymous(w.box.Process.Pid)
	if err != nil {
		return err
	}
	if err := w.ours.asks("hold", n, fmt.Sprintf("%s/%d", w.at, smallBody)); err != nil {
		return fmt.Errorf("connections that are kept: %w", err)
	}
	after, err := anonymous(w.box.Process.Pid)
	if err == nil {
		err = w.ours.asks("drop", 1, w.at)
	}
	if err != nil {
		return err
	}
	each := (after - before) / n
	pages := int64(2 * 64 << 10) // what two of the kernel's own buffers may have
	b.add(row{
		What: fmt.Sprintf("memory for each of %d connections whose TLS is opened", n), Ours: [2]string{kilobytes(each), ""},
		Name: "two buffers of a socket", Beside: [2]string{kilobytes(pages), ""}, Ratio: float64(each) / float64(pages), Figure: kilobytes(each),
	})
	return nil
}

func kilobytes(n int64) string { return fmt.Sprintf("%.0f KB", float64(n)/1e3) }

// leafRow measures a certificate for a host that has none yet.
func leafRow(ctx context.Context, b *bench, w *web, conn *api.Client) (err error) {
	s, err := conn.OpenSession(ctx, api.OpenRequest{Principal: "default/bench", Workspace: w.Work, PolicyDir: w.policy})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	leafs, err := mitm.NewLeafs(mitm.LeafOptions{Sign: s.Mint})
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte("what is signed"))
	var mine, theirs series
	for i := range b.times(300) {
		host := fmt.Sprintf("h%d.example.com", i)
		t, err := s.Decide(ctx, act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: host + ":443"}}}})
		if err != nil || t.Verdict != act.Allow {
			return fmt.Errorf("connecting to %s: %s %w", host, t.Reason, err)
		}
		_, err = s.Finish(ctx, t, act.Outcome{})
		err = errors.Join(err,
			timed(&mine, func() error { _, err := leafs.Leaf(ctx, host); return err }),
			timed(&theirs, func() error { _, err := ecdsa.SignASN1(rand.Reader, key, sum[:]); return err }))
		if err != nil {
			return err
		}
	}
	b.add(latency("a certificate for a new host, signed by the engine", mine, "one signature of ECDSA P-256", theirs).within(mine.p50(), time.Millisecond))
	return nil
}
