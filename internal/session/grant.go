package session

import (
	"slices"

	"ringfence/internal/act"
)

// maxGrants bounds the connections that people allowed in one session.
const maxGrants = 256

// Grant lets connections to "host:port" pass until the session ends or [Session.Revoke]
// takes it back. A person has said so. false: there are too many, or the session ended.
func (s *Session) Grant(hostPort string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.grants) >= maxGrants {
		return false
	}
	if !slices.Contains(s.grants, hostPort) {
		s.grants = append(s.grants, hostPort)
	}
	return true
}

// Revoke takes a grant back; false if there is none. What passes already is not stopped.
func (s *Session) Revoke(hostPort string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.grants, hostPort)
	if i < 0 {
		return false
	}
	s.grants = slices.Delete(s.grants, i, i+1)
	return true
}

// Grants returns the grants in force, oldest first.
func (s *Session) Grants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	return slices.Clone(s.grants)
}

// maxScopes bounds what people allowed by a [Scope] in one session.
const maxScopes = 256

// A Scope is what a person allowed until the session ends: calls that ask for the same
// consent, and do no more than what it names. It is in memory alone, so no engine that
// starts again has it. The gate says which calls are within it.
type Scope struct {
	ID      string   // of the question that was answered so
	Form    string   // how Place is meant, see the gate
	Place   string   // a directory, a host, a tool, or "" where Digest says it
	Text    string   // for people
	Verb    act.Verb // of the request
	Tool    string   // as the request names it
	Bound   string   // its definition, what is started as its server, and the policy
	Clauses []string // that were approved
	Kinds   []string // of effects
	Digest  [32]byte // of one call
	Used    int      // calls that passed by it since
}

// Keep puts s in force. false: there are too many, or the session ended. Of one id there is
// one.
func (s *Session) Keep(c Scope) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.scopes) >= maxScopes {
		return false
	}
	if s.scope(c.ID) < 0 {
		c.Used = 0
		s.scopes = append(s.scopes, c)
	}
	return true
}

// scope is the place of the scope with that id, or -1. The lock is held.
func (s *Session) scope(id string) int {
	return slices.IndexFunc(s.scopes, func(c Scope) bool { return c.ID == id })
}

// Scopes returns the scopes in force, oldest first. What is in them is not the caller's.
func (s *Session) Scopes() []Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	return slices.Clone(s.scopes)
}

// Use counts a call that passes by the scope with that id; false if it is not in force, and
// then the call does not pass.
func (s *Session) Use(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.scope(id)
	if i < 0 || s.ended {
		return false
	}
	s.scopes[i].Used++
	return true
}

// Withdraw takes the scope with that id back; false if there is none.
func (s *Session) Withdraw(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.scope(id)
	if i < 0 {
		return false
	}
	s.scopes = slices.Delete(s.scopes, i, i+1)
	return true
}
