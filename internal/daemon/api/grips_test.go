package api

import (
	"context"
	"errors"
	"testing"
)

// Grips answers with who asked for what, as a note.
func (f *fake) Grips(_ context.Context, _ Caller, r GripsRequest) (Grips, error) {
	return Grips{Verdict: "allow", Notes: []string{r.Session + r.Workspace}}, nil
}

// TestGrips: of a session only its owner asks; without one everybody may.
func TestGrips(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		c := w.connect(Options{})
		s, err := c.OpenSession(t.Context(), OpenRequest{Principal: "p/a", Workspace: "/w"})
		if err != nil {
			t.Fatal(err)
		}
		id := s.Opened().Session
		for want, r := range map[string]GripsRequest{"/w": {Workspace: "/w"}, id: {Session: id}} {
			if g, err := c.Grips(t.Context(), r); err != nil || len(g.Notes) != 1 || g.Notes[0] != want {
				t.Errorf("%v, %v", g, err)
			}
		}
		if _, err := w.connect(Options{}).Grips(t.Context(), GripsRequest{Session: id}); !errors.Is(err, ErrNoSession) {
			t.Errorf("another client's: %v", err)
		}
	})
}
