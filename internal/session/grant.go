package session

import "slices"

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
