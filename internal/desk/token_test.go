package desk

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// args is the hash of arguments in canonical form: encoding/json sorts keys.
func args(t *testing.T, text string) [32]byte {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	canonical, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(canonical)
}

func bound(t *testing.T) Bound {
	return Bound{
		Principal: "p/a", Session: "s-1", Server: "git", ServerPin: "sp", Tool: "git_push", ToolPin: "tp",
		Args:    args(t, `{"path":"/w","remote":"origin"}`),
		Effects: []act.Effect{{Kind: act.GitPush, Resource: act.Resource{Type: act.Remote, Text: "https://x/y#refs/heads/main"}}},
		Policy:  "ph", Clauses: []string{"c1", "c2"},
	}
}

// approve returns a token for b.
func approve(t *testing.T, d *Desk, b Bound) string {
	t.Helper()
	q := ask(1)
	q.Digest = Digest(b)
	ch := start(t.Context(), d, q)
	if err := d.Answer(d.List()[0].ID, alice, Choice{Yes: true}); err != nil {
		t.Fatal(err)
	}
	return (<-ch).Token
}

// TestR7 is the approval token against every change of what it was given for:
// server, tool, pin, argument, order of keys, policy, principal, session; and
// against reuse.
func TestR7(t *testing.T) {
	for name, change := range map[string]func(*Bound){
		"server":     func(b *Bound) { b.Server = "git2" },
		"server pin": func(b *Bound) { b.ServerPin = "sp2" },
		"tool":       func(b *Bound) { b.Tool = "git_pull" },
		"pin":        func(b *Bound) { b.ToolPin = "tp2" },
		"argument":   func(b *Bound) { b.Args = args(t, `{"path":"/w","remote":"evil"}`) },
		"effect":     func(b *Bound) { b.Effects = []act.Effect{{Kind: act.GitForce, Resource: b.Effects[0].Resource}} },
		"tree":       func(b *Bound) { e := b.Effects[0]; e.Tree = true; b.Effects = []act.Effect{e} },
		"policy":     func(b *Bound) { b.Policy = "ph2" },
		"principal":  func(b *Bound) { b.Principal = "p/b" },
		"session":    func(b *Bound) { b.Session = "s-2" },
		"clauses":    func(b *Bound) { b.Clauses = []string{"c1"} },
		"boundary":   func(b *Bound) { b.Server, b.ServerPin = "gits", "p" },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			token := approve(t, d, bound(t))
			other := bound(t)
			change(&other)
			if err := d.Consume(token, Digest(other)); !errors.Is(err, ErrToken) {
				t.Errorf("%s: consumed for something else: %v", name, err)
			}
			if err := d.Consume(token, Digest(bound(t))); !errors.Is(err, ErrToken) {
				t.Errorf("%s: still good after an attempt on something else: %v", name, err)
			}
		})
	}
	for name, change := range map[string]func(*Bound){
		"order of keys":    func(b *Bound) { b.Args = args(t, `{"remote":"origin","path":"/w"}`) },
		"order of clauses": func(b *Bound) { b.Clauses = []string{"c2", "c1", "c2"} },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			token := approve(t, d, bound(t))
			same := bound(t)
			change(&same)
			if err := d.Consume(token, Digest(same)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := d.Consume(token, Digest(same)); !errors.Is(err, ErrToken) {
				t.Errorf("%s: used twice: %v", name, err)
			}
		})
	}
}

// TestR7Life is the rest of R7: expiry, a crash before dispatch, and two who
// consume at once.
func TestR7Life(t *testing.T) {
	t.Run("expiry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			token := approve(t, d, bound(t))
			<-time.After(time.Minute)
			if err := d.Consume(token, Digest(bound(t))); !errors.Is(err, ErrExpired) {
				t.Errorf("after a minute: %v", err)
			}
		})
	})
	t.Run("crash between approval and dispatch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			token := approve(t, New(Options{}), bound(t))
			if err := New(Options{}).Consume(token, Digest(bound(t))); !errors.Is(err, ErrToken) {
				t.Errorf("survives its desk: %v", err)
			}
		})
	})
	t.Run("double spend", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			token := approve(t, d, bound(t))
			var spent atomic.Int32
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if d.Consume(token, Digest(bound(t))) == nil {
						spent.Add(1)
					}
				})
			}
			if all.Wait(); spent.Load() != 1 {
				t.Errorf("consumed %d times", spent.Load())
			}
		})
	})
}

func TestForgedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		raw, err := base64.RawURLEncoding.DecodeString(approve(t, d, bound(t)))
		if err != nil || len(raw) != 48 {
			t.Fatal(len(raw), err)
		}
		forged := append([]byte{}, raw...)
		forged[47] ^= 1
		for _, token := range []string{"", "x", "====", base64.RawURLEncoding.EncodeToString(raw[:47]), base64.RawURLEncoding.EncodeToString(forged)} {
			if err := d.Consume(token, Digest(bound(t))); !errors.Is(err, ErrToken) {
				t.Errorf("%q: %v", token, err)
			}
		}
	})
}

// TestUnusedTokens: approvals that nobody consumes are bounded and do not stay.
func TestUnusedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		for range maxTokens {
			if a, err := d.grant(t.Context(), Sum{}, Answer{Approved: true}); err != nil || a.Token == "" {
				t.Fatal(err)
			}
		}
		if a, err := d.grant(t.Context(), Sum{}, Answer{Approved: true}); !errors.Is(err, ErrCrowded) || a.Approved {
			t.Errorf("one more: %v", err)
		}
		<-time.After(time.Minute)
		if _, err := d.grant(t.Context(), Sum{}, Answer{Approved: true}); err != nil || len(d.tokens) != 1 {
			t.Errorf("after their time: %v, %d left", err, len(d.tokens))
		}
	})
}

// TestDigestIsInjective: moving a byte between neighbouring fields is another
// digest.
func TestDigestIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SliceOfN(rapid.StringMatching(`[a\x00]{0,3}`), 7, 7)
		a, b := s.Draw(t, "a"), s.Draw(t, "b")
		make := func(s []string) Bound {
			return Bound{Principal: s[0], Session: s[1], Server: s[2], ServerPin: s[3], Tool: s[4], Policy: s[5], Clauses: []string{s[6]}}
		}
		same := true
		for i := range a {
			same = same && a[i] == b[i]
		}
		if (Digest(make(a)) == Digest(make(b))) != same {
			t.Fatalf("%q and %q", a, b)
		}
	})
}
