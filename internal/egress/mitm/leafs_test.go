package mitm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestLeafs: one signature for each host at once, bounded, made anew in time, and what
// the authority got wrong is not used.
func TestLeafs(t *testing.T) {
	i, now := newIssuer(t), time.Now()
	l, err := NewLeafs(LeafOptions{Sign: i.sign, Max: 3, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	certs := make([]*tls.Certificate, 50)
	for n := range certs {
		wg.Go(func() {
			var err error
			if certs[n], err = l.Leaf(t.Context(), "a.test"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range certs {
		if c != certs[0] {
			t.Fatal("one host has several leafs")
		}
	}
	if i.n != 1 {
		t.Errorf("%d signatures for one host", i.n)
	}
	for n := range 10 {
		if _, err := l.Leaf(t.Context(), fmt.Sprintf("%d.test", n)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf(t.Context(), "a.test"); err != nil { // it stays, as it is in use
			t.Fatal(err)
		}
	}
	if l.recent.Len() != 3 || len(l.byHost) != 3 || i.n != 11 {
		t.Errorf("%d leafs are kept, %d signatures", l.recent.Len(), i.n)
	}
	now = i.cert.NotAfter.Add(-time.Minute)
	if c, err := l.Leaf(t.Context(), "a.test"); err != nil || c == certs[0] {
		t.Errorf("a leaf at its end is used: %v", err)
	}
	i.fail = errors.New("no")
	if _, err := l.Leaf(t.Context(), "b.test"); err == nil {
		t.Error("no signature, but a leaf")
	}
	i.fail = nil
	if _, err := l.Leaf(t.Context(), "b.test"); err != nil {
		t.Errorf("a failure is for good: %v", err)
	}
	for what, sign := range map[string]Sign{
		"nothing":     func(context.Context, string, []byte) ([][]byte, error) { return nil, nil },
		"garbage":     func(context.Context, string, []byte) ([][]byte, error) { return [][]byte{{1, 2}}, nil },
		"another key": func(context.Context, string, []byte) ([][]byte, error) { return [][]byte{i.cert.Raw}, nil },
		"another name": func(ctx context.Context, _ string, public []byte) ([][]byte, error) {
			return i.sign(ctx, "evil.test", public)
		},
	} {
		l, err := NewLeafs(LeafOptions{Sign: sign})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf(t.Context(), "a.test"); err == nil {
			t.Errorf("the authority signed %s, and it is used", what)
		}
	}
}

// TestOneWaitsForAnother: who waits for a signature of another can give up.
func TestOneWaitsForAnother(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	l, err := NewLeafs(LeafOptions{Sign: func(context.Context, string, []byte) ([][]byte, error) {
		close(asked)
		<-answer
		return nil, errors.New("no")
	}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = l.Leaf(t.Context(), "a.test") })
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Leaf(ctx, "a.test"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(answer)
	wg.Wait()
}

// BenchmarkLeaf is a signature as the authority makes it.
func BenchmarkLeaf(b *testing.B) {
	i := newIssuer(b)
	l, err := NewLeafs(LeafOptions{Sign: i.sign})
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; b.Loop(); n++ {
		if _, err := l.Leaf(b.Context(), fmt.Sprintf("%d.test", n)); err != nil {
			b.Fatal(err)
		}
	}
}
