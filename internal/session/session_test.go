package session_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/session"
)

// TestStateMachine holds a session against a plain model of S1 to S3.
func TestStateMachine(t *testing.T) {
	labels := []act.Label{act.LabelUntrusted, act.LabelPrivate, act.LabelSecret}
	rapid.Check(t, func(t *rapid.T) {
		s := &session.Session{ID: "s"}
		var have []act.Label
		open := map[string]bool{}
		ended := false
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("s/%d", rapid.IntRange(0, 12).Draw(t, "seq")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				l := rapid.SampledFrom(labels).Draw(t, "label")
				fresh := s.Add(l)
				if got, want := len(fresh) == 1, !slices.Contains(have, l); got != want {
					t.Fatalf("adding %s: fresh is %v, want %v", l, got, want)
				}
				have = append(have, fresh...)
			},
			"open": func(t *rapid.T) {
				id := id.Draw(t, "id")
				err := s.Open(session.Open{Ticket: act.Ticket{ID: id}})
				if errors.Is(err, session.ErrEnded) != ended || (err != nil) != ended {
					t.Fatalf("opening %s: %v, ended is %v", id, err, ended)
				}
				if !ended {
					open[id] = true
				}
			},
			"take": func(t *rapid.T) {
				id := id.Draw(t, "id")
				o, ok := s.Take(id)
				if ok != open[id] || ok && o.Ticket.ID != id {
					t.Fatalf("taking %s: %v %v, want %v", id, o.Ticket.ID, ok, open[id])
				}
				delete(open, id)
			},
			"drain": func(t *rapid.T) {
				all := s.Drain()
				if len(all) != len(open) {
					t.Fatalf("drained %d, want %d", len(all), len(open))
				}
				seq := -1
				for _, o := range all {
					var n int
					if _, err := fmt.Sscanf(o.Ticket.ID, "s/%d", &n); err != nil || n <= seq || !open[o.Ticket.ID] {
						t.Fatalf("drained %s after %d", o.Ticket.ID, seq)
					}
					seq = n
				}
				clear(open)
			},
			"end": func(t *rapid.T) {
				if s.End() == ended {
					t.Fatal("End does not tell the first time from the others")
				}
				ended = true
			},
			"": func(t *rapid.T) {
				if !slices.Equal(s.Labels(), have) || s.Ended() != ended {
					t.Fatalf("labels %v, want %v", s.Labels(), have)
				}
			},
		})
	})
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	token := session.NewToken()
	f := session.File{
		ID: session.NewID(), Principal: "default/claude", Workspace: "/w", Home: "/home/u", UID: 1000,
		TokenHash: session.HashToken(token), Started: time.Unix(1, 0).UTC(), Open: []byte(`{"a":1}`), Lost: time.Unix(2, 0).UTC(),
	}
	if err := f.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"s-.json", f.ID + ".json.tmp", "x.json"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := session.IDs(dir); err != nil || !slices.Equal(ids, []string{f.ID}) {
		t.Errorf("sessions on disk: %q, %v", ids, err)
	}
	got, err := session.LoadFile(dir, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != f.ID || got.Principal != f.Principal || !got.Started.Equal(f.Started) || !got.Lost.Equal(f.Lost) {
		t.Errorf("got %+v, want %+v", got, f)
	}
	for _, c := range []struct {
		token string
		uid   uint32
		want  bool
	}{{token, 1000, true}, {token, 1001, false}, {token + "a", 1000, false}, {"", 1000, false}, {f.TokenHash, 1000, false}} {
		if got.Resumes(c.token, c.uid) != c.want {
			t.Errorf("resuming with %q as %d: want %v", c.token, c.uid, c.want)
		}
	}
	if err := session.RemoveFile(dir, f.ID); err != nil {
		t.Fatal(err)
	}
	if err := session.RemoveFile(dir, f.ID); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	if _, err := session.LoadFile(dir, f.ID); err == nil {
		t.Error("a removed session still loads")
	}
}

// TestIDNamesNoOtherFile: an id from a client cannot leave the folder.
func TestIDNamesNoOtherFile(t *testing.T) {
	for _, id := range []string{"", "../x", "s-../../../../etc/pas", "s-aaaaaaaaaaaaaaaa/", "S-AAAAAAAAAAAAAAAA", "s-aaaaaaaaaaaaaaa\x00"} {
		if _, err := session.LoadFile(t.TempDir(), id); err == nil {
			t.Errorf("loading %q: no error", id)
		}
		if err := session.RemoveFile(t.TempDir(), id); err == nil {
			t.Errorf("removing %q: no error", id)
		}
	}
}
