package api

import (
	"net"
	"testing"
)

// TestSilentFlood: processes that connect and say nothing keep nobody out, and one that
// says hello has no more than its share.
func TestSilentFlood(t *testing.T) {
	s := NewServer(newFake(), ServerOptions{MaxConns: 16})
	silent := func(pid int) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close() })
		_, err := s.seats.take(theirs, pid)
		return ours, err
	}
	var first net.Conn
	for pid := 1; pid <= 100; pid++ {
		for i := range 10 {
			c, err := silent(pid)
			if (err == nil) != (i < 4) {
				t.Fatalf("connection %d of process %d: %v", i, pid, err)
			}
			if first == nil {
				first = c
			}
		}
		if n := s.Connections(); n > 16 {
			t.Fatalf("%d connections", n)
		}
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the oldest silent one is still there")
	}
	for pid := 101; pid <= 104; pid++ { // honest
		for range 4 {
			_, theirs := net.Pipe()
			p, err := s.seats.take(theirs, pid)
			if err != nil || !p.greeted() {
				t.Fatalf("process %d: %v", pid, err)
			}
			defer p.leave()
		}
	}
	if _, err := silent(105); err == nil {
		t.Error("a place of somebody who has said hello was given away")
	}
}

// TestEvicted: who says hello after his place was given to another is not served, and
// gives nothing back twice.
func TestEvicted(t *testing.T) {
	s := NewServer(newFake(), ServerOptions{MaxConns: 1})
	var all []*seat
	for pid := range 3 {
		_, theirs := net.Pipe()
		p, err := s.seats.take(theirs, pid)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if all[0].greeted() || all[1].greeted() || !all[2].greeted() {
		t.Error("not the last has the place")
	}
	for _, p := range all {
		p.leave()
	}
	if n := s.Connections(); n != 0 || len(s.seats.byPID) > 0 || len(s.seats.silent) > 0 {
		t.Errorf("%d connections are left", n)
	}
}
