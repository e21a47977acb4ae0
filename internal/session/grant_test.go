package session_test

import (
	"fmt"
	"testing"

	"ringfence/internal/session"
)

// TestScopes: a scope is in force once, counted while it is, and not after it was taken back
// or the session has ended.
func TestScopes(t *testing.T) {
	s := &session.Session{ID: "s"}
	if s.Use("a") || s.Withdraw("a") {
		t.Error("what was not given is there")
	}
	for range 2 {
		if !s.Keep(session.Scope{ID: "a", Used: 7}) || !s.Use("a") {
			t.Fatal("what was given is not there")
		}
	}
	if all := s.Scopes(); len(all) != 1 || all[0].Used != 2 {
		t.Errorf("%+v", all)
	}
	if !s.Withdraw("a") || s.Use("a") || len(s.Scopes()) > 0 {
		t.Error("what was taken back is there")
	}
	n := 0
	for s.Keep(session.Scope{ID: fmt.Sprint(n)}) {
		n++
	}
	if n != 256 {
		t.Errorf("%d scopes are kept", n)
	}
	s.End()
	if s.Use("1") || len(s.Scopes()) > 0 || s.Keep(session.Scope{ID: "b"}) {
		t.Error("a scope outlives its session")
	}
}
