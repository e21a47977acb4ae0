package listen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestManySessions: beyond the bound, the session that was not used for longest ends.
func TestManySessions(t *testing.T) {
	s := newStage(t, nil)
	first := s.open()
	for range maxSessions {
		s.open()
	}
	if r := s.send("DELETE", "", map[string]string{headerSession: first}); r.status != http.StatusNotFound {
		t.Errorf("the first session: %d", r.status)
	}
	if n := len(s.h.sessions); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
}

// TestDoesNotRead: a client that does not take its answer in loses its connection, and
// others are answered meanwhile.
func TestDoesNotRead(t *testing.T) {
	s := newStage(t, nil)
	s.h.patience = 50 * time.Millisecond
	conn, err := net.Dial("tcp", s.h.o.Hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := callOf("1", "large", "", ","+alone+"}")
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n%s: 2026-07-28\r\n%s: tools/call\r\n%s: large\r\n\r\n%s",
		Path, s.h.o.Hosts[0], secret, len(body), headerVersion, headerMethod, headerName, body)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 300)
	if _, err := io.ReadFull(conn, first); err != nil || !strings.HasPrefix(string(first), "HTTP/1.1 200") {
		t.Fatalf("%v %s", err, first)
	}
	if r := s.send("POST", callOf("1", "echo", "still here", ","+alone+"}"), headers("tools/call", "echo")); !strings.Contains(r.body, "still here") {
		t.Errorf("another client: %d %s", r.status, r.body)
	}
	for { // until it is dropped: nothing is read, so that the answer cannot end
		s.h.mu.Lock()
		n := s.h.requests["token"]
		s.h.mu.Unlock()
		if n == 0 {
			break
		}
		<-time.After(time.Millisecond)
	}
	n, err := io.Copy(io.Discard, conn)
	if n >= 32<<20 || err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%d bytes came, %v", n, err)
	}
}
