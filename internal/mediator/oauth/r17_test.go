package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// loggedIn is a world in which a person has logged in once, and its store.
func loggedIn(t *testing.T) (*world, TokenStore) {
	w, store := newWorld(t), NewMemory()
	if _, err := w.use(t.Context(), w.client(store, false)); err != nil {
		t.Fatal(err)
	}
	return w, store
}

// revoke makes the authorization server forget tokens.
func (w *world) revoke(access, refresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if access {
		clear(w.valid)
	}
	if refresh {
		clear(w.refresh)
	}
}

// TestR17 is the life of a login: what ends it, what renews it, and that a person hears of it.
func TestR17(t *testing.T) {
	t.Run("renewals", renewals)
	t.Run("ends", ends)
	t.Run("others", others)
	t.Run("clock skew", clockSkew)
	t.Run("parallel refresh", parallelRefresh)
	t.Run("logout", func(t *testing.T) {
		w, store := loggedIn(t)
		c := w.client(store, true)
		had, err := c.Logout(t.Context())
		if !had || err != nil || w.count("as POST /revoke") != 1 {
			t.Error(had, err, w.requests)
		}
		if _, err := w.use(t.Context(), c); !errors.Is(err, ErrLogin) {
			t.Error(err)
		}
		if had, err := c.Logout(t.Context()); had || err != nil {
			t.Error(had, err)
		}
	})
}

// renewals: tokens are renewed before they end, and when they are refused.
func renewals(t *testing.T) {
	t.Run("stored login", func(t *testing.T) {
		w, store := loggedIn(t)
		if _, err := w.use(t.Context(), w.client(store, true)); err != nil || w.issued != 1 {
			t.Error(err, w.issued)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		w := newWorld(t)
		_, err := w.use(t.Context(), w.client(nil, true))
		if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "ringfence servers login far") || w.count("as POST") != 0 {
			t.Error(err, w.requests)
		}
	})
	t.Run("ends soon", func(t *testing.T) {
		w, store := loggedIn(t)
		c := w.client(store, true)
		w.pass(time.Hour - earliest - time.Second)
		if _, err := w.use(t.Context(), c); err != nil || w.issued != 1 {
			t.Error(err, w.issued)
		}
		w.pass(time.Second)
		if _, err := w.use(t.Context(), c); err != nil || w.issued != 2 {
			t.Error(err, w.issued)
		}
		g, _, _ := store.Load(t.Context(), c.id, "")
		if g.Access != "access-token-2" || g.Refresh != "refresh-token-2" {
			t.Errorf("the new tokens are not kept: %+v", g)
		}
		w.tight(nil)
	})
	t.Run("revoked access", func(t *testing.T) {
		w, store := loggedIn(t)
		w.pass(time.Minute)
		w.revoke(true, false)
		if _, err := w.use(t.Context(), w.client(store, true)); err != nil || w.issued != 2 {
			t.Error(err, w.issued)
		}
	})
}

// ends: when a login is over a person hears of it, and the next one works.
func ends(t *testing.T) {
	t.Run("revoked refresh", func(t *testing.T) {
		w, store := loggedIn(t)
		w.pass(2 * time.Hour)
		w.revoke(true, true)
		c := w.client(store, true)
		_, err := w.use(t.Context(), c)
		if !errors.Is(err, ErrLogin) || len(w.notes) != 1 || !strings.Contains(w.notes[0], "invalid_grant") {
			t.Error(err, w.notes)
		}
		w.tight(err)
		if g, ok, _ := store.Load(t.Context(), c.id, ""); !ok || g.Access != "" || g.Refresh != "" || g.Client.ID == "" {
			t.Errorf("kept: %+v", g)
		}
		// The next login uses the same client.
		w.pass(quietTime)
		if _, err := w.client(store, false).Login(t.Context()); err != nil || w.count("as POST /register") != 1 {
			t.Error(err, w.count("as POST /register"))
		}
		if _, err := w.use(t.Context(), c); err != nil {
			t.Error("the process that was there before does not use the new login:", err)
		}
	})
	t.Run("invalid_client", func(t *testing.T) {
		w, store := loggedIn(t)
		w.pass(2 * time.Hour)
		clear(w.clients)
		if _, err := w.use(t.Context(), w.client(store, true)); !errors.Is(err, ErrLogin) {
			t.Error(err)
		}
		if _, err := w.client(store, false).Login(t.Context()); err != nil || w.count("as POST /register") != 2 {
			t.Error(err, w.count("as POST /register"))
		}
	})
	t.Run("forgotten client", func(t *testing.T) {
		w, store := loggedIn(t)
		clear(w.clients)
		if _, err := w.client(store, false).Login(t.Context()); err != nil || w.count("as POST /register") != 2 {
			t.Error(err, w.count("as POST /register"))
		}
	})
}

// others: what happens at the authorization server, or with it.
func others(t *testing.T) {
	t.Run("issuer change", func(t *testing.T) {
		w, store := loggedIn(t)
		w.pass(time.Minute)
		w.revoke(true, false)
		var leaked string
		var next *httptest.Server
		next = w.serve("next", func(rw http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			leaked += r.Form.Get("refresh_token") + r.Form.Get("client_secret") + r.Header.Get("Authorization")
			write(rw, 200, map[string]any{
				"issuer": next.URL, "authorization_endpoint": next.URL + "/authorize", "token_endpoint": next.URL + "/token",
				"code_challenge_methods_supported": []string{"S256"},
			})
		})
		w.about = func(m map[string]any) { m["authorization_servers"] = []string{next.URL} }
		_, err := w.use(t.Context(), w.client(store, true))
		if !errors.Is(err, ErrLogin) || leaked != "" || w.count("as POST /token") != 1 {
			t.Error(err, leaked, w.requests)
		}
		w.tight(err)
	})
	t.Run("authorization server away", func(t *testing.T) {
		w, store := loggedIn(t)
		w.over["as /token"] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) }
		c := w.client(store, true)
		w.pass(time.Hour - time.Second)
		for range 3 {
			if _, err := w.use(t.Context(), c); err != nil {
				t.Error("a token that is still good is not used:", err)
			}
		}
		if n := w.count("as POST /token"); n != 2 {
			t.Errorf("%d requests for tokens", n)
		}
		w.pass(time.Minute)
		if _, err := w.use(t.Context(), c); err == nil || errors.Is(err, ErrLogin) {
			t.Error("a server that is away for a while ends a login:", err)
		}
		delete(w.over, "as /token")
		w.pass(quietTime)
		if _, err := w.use(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
}

// clockSkew: clocks that go wrong cost a renewal at most.
func clockSkew(t *testing.T) {
	w, store := loggedIn(t)
	c := w.client(store, true)
	w.pass(-2 * time.Hour) // ours is set back: the token seems to be good, and is not
	w.revoke(true, false)
	if _, err := w.use(t.Context(), c); err != nil || w.issued != 2 {
		t.Error(err, w.issued)
	}
	w.tokens = func(m map[string]any) { m["expires_in"] = 1 } // theirs is ahead
	w.pass(3 * time.Hour)
	before := w.issued
	if _, err := w.use(t.Context(), c); err != nil || w.issued != before+1 {
		t.Error(err, w.issued)
	}
	w.tokens = func(m map[string]any) { m["expires_in"] = -5 }
	w.pass(time.Minute)
	if _, err := w.use(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// parallelRefresh: fifty requests that need a new token obtain one, also in two
// processes with one store.
func parallelRefresh(t *testing.T) {
	w, store := loggedIn(t)
	var hold sync.Mutex
	lock := func(context.Context, string) (func(), error) {
		hold.Lock()
		return hold.Unlock, nil
	}
	clients := []*Client{w.client(store, true), w.client(store, true)}
	for _, c := range clients {
		c.o.Hold = lock
	}
	for round := range 2 {
		if round == 0 {
			w.pass(2 * time.Hour) // it has ended
		} else {
			w.pass(time.Minute) // it is refused
			w.revoke(true, false)
		}
		var work sync.WaitGroup
		for i := range 50 {
			work.Go(func() {
				if _, err := w.use(t.Context(), clients[i%2]); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if w.issued != 2+round {
			t.Errorf("round %d: %d tokens", round, w.issued)
		}
	}
	w.tight(nil)
}

// TestStepUp: with nobody there, the scopes that a server wants are kept for the next
// login, which asks for those that were granted too.
func TestStepUp(t *testing.T) {
	w, store := loggedIn(t)
	w.wants = func(string) []string { return []string{`Bearer error="insufficient_scope", scope="b a"`} }
	_, err := w.use(t.Context(), w.client(store, true))
	if !errors.Is(err, ErrLogin) || w.count("as POST /token") != 1 {
		t.Error(err)
	}
	var asked string
	w.browser = func(at string) error {
		asked = at
		w.browser = nil
		return w.person(t.Context(), at)
	}
	w.wants = func(token string) []string {
		if token == "" {
			return []string{`Bearer scope="c"`}
		}
		return nil
	}
	if _, err := w.client(store, false).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(asked, "scope=c+b+a") {
		t.Error(asked)
	}
}
