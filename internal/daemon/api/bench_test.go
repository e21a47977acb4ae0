package api

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

func benchSession(b *testing.B, h Handler) *Session {
	b.Helper()
	path := filepath.Join(b.TempDir(), "engine.sock")
	l, err := ipc.Listen(path)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- NewServer(h, ServerOptions{}).Serve(ctx, l) }()
	c, err := Connect(ctx, Options{Dial: func(ctx context.Context) (net.Conn, error) { return ipc.Dial(ctx, path) }})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.OpenSession(ctx, OpenRequest{Principal: "p/a"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkDecide is the round trips of a decision that costs nothing itself, and of
// its outcome.
func BenchmarkDecide(b *testing.B) {
	f := newFake()
	effects := []act.Effect{{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/home/u/src/project/file.go", Facts: map[string]any{act.FactExists: true}}}}
	f.decide = func(_ context.Context, r act.Request) (act.Ticket, error) {
		return act.Ticket{
			ID: r.Session + "/12", Session: r.Session, Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow,
			Rules: []string{"c1"}, Reason: "c1: may read and search files anywhere under ~/src", Effects: effects, Bytes: r.Args,
		}, nil
	}
	s := benchSession(b, f)
	r := act.Request{Verb: act.VerbCall, Tool: "filesystem.read_text_file", Args: []byte(`{"path":"/home/u/src/project/file.go"}`)}
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	before := switches(b)
	for b.Loop() {
		start := time.Now()
		t, err := s.Decide(b.Context(), r)
		if err != nil || t.Verdict != act.Allow {
			b.Fatal(t, err)
		}
		if _, err := s.Finish(b.Context(), t, act.Outcome{Body: r.Args}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	b.ReportMetric(float64(switches(b)-before)/float64(b.N), "switches/op")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "µs-p99")
}

// BenchmarkSocket is the floor: 300 bytes there and 300 back on a Unix socket.
func BenchmarkSocket(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	l, err := ipc.Listen(path)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 512)
		for {
			n, err := nc.Read(buf)
			if err != nil {
				return
			}
			if _, err := nc.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	nc, err := ipc.Dial(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	buf := make([]byte, 300)
	for b.Loop() {
		if _, err := nc.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := nc.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
