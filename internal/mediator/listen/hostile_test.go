package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
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

// dial connects to the stage and sends text.
func (s *stage) dial(text string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.h.o.Hosts[0])
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// TestStrangersShutNoDoor: who shows no token takes no place of who does, however many
// connections it opens and whatever it says on them: it is refused once, and of those that
// say nothing the oldest gives way.
func TestStrangersShutNoDoor(t *testing.T) {
	s := newStage(t, nil)
	for name, c := range map[string]struct {
		header map[string]string
		status int
	}{
		"no token":     {map[string]string{"Authorization": ""}, http.StatusUnauthorized},
		"wrong token":  {map[string]string{"Authorization": "Bearer x"}, http.StatusUnauthorized},
		"another host": {map[string]string{"Host": "evil.example"}, http.StatusForbidden},
	} {
		resp, err := s.do(t.Context(), "POST", initialize, c.header)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status || !resp.Close {
			t.Errorf("%s: %d, and the connection stays: %v", name, resp.StatusCode, !resp.Close)
		}
	}
	session := s.open() // its connection is known, and kept
	refused := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n", Path, s.h.o.Hosts[0])
	first := s.dial("")
	for range maxConns {
		s.dial("")
		s.dial(refused)
	}
	if r := s.send("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{headerSession: session}); r.status != http.StatusOK {
		t.Errorf("on a known connection: %d", r.status)
	}
	http.DefaultClient.CloseIdleConnections()
	s.open() // on a new one
	if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the first stranger reads %d bytes, %v", n, err)
	}
}

// A pipes is a listener whose connections the test makes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return nil }

// TestStrangersGiveWay: of strangers the one that came first goes, known connections do
// not, and of these there are only so many; a stranger's time is short.
func TestStrangersGiveWay(t *testing.T) {
	in := make(pipes, 1)
	l := limit(in, 2, 3, time.Hour)
	accept := func() (*counted, net.Conn) {
		near, far := net.Pipe()
		in <- near
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*counted), far
	}
	gone := func(far net.Conn) {
		t.Helper()
		_ = far.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("it is not closed: %v", err)
		}
	}
	first, _ := accept()
	second, _ := accept()
	for _, c := range []*counted{first, first, second} {
		if !c.admit() {
			t.Error("there is room for two known ones")
		}
	}
	stranger, far := accept()
	if stranger.admit() {
		t.Error("there is none for three")
	}
	others := []*counted{}
	for range 3 {
		c, _ := accept()
		others = append(others, c)
	}
	gone(far)
	first.Close()
	first.Close()
	if stranger.admit() || !others[0].admit() || others[1].admit() {
		t.Error("who gave way is known, or a place is lost")
	}
	if l.known != 2 || l.strangers.Len() != 2 {
		t.Errorf("%d known, %d strangers", l.known, l.strangers.Len())
	}
	l.patience = 1
	_, far = accept()
	gone(far)
}

// A slow is a body that stops after some bytes, says so, and ends with the test.
type slow struct {
	left    int
	stopped func()
	over    <-chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.stopped()
		<-s.over
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), s.left)
	s.left -= n
	return copy(p[:n], strings.Repeat("x", n)), nil
}

// TestSlowBodiesShutNobodyOut: bodies that do not come reserve nothing, whatever their
// headers announce; those that come for the most part reserve no more than the share of
// their client, and for short messages there is room in any case.
func TestSlowBodiesShutNobodyOut(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Users = []uint32{1, 2} })
	post := func(id uint32, size int64, body io.Reader) int {
		ctx := context.WithValue(context.Background(), peerKey{}, user{id, true, true})
		r, err := http.NewRequestWithContext(ctx, "POST", s.url, body)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.ContentLength = size
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}}
		w := &recorder{reply: reply{header: http.Header{}}}
		s.h.ServeHTTP(w, r)
		return w.status
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(over)
	stall := func(n, bytes int, size int64) (refused int) {
		stopped := make(chan int, n)
		for range n {
			all.Go(func() {
				once := sync.OnceFunc(func() { stopped <- 0 })
				if post(1, size, &slow{bytes, once, over}) == http.StatusServiceUnavailable {
					stopped <- 1
				}
			})
		}
		for range n {
			refused += <-stopped
		}
		return refused
	}
	long := strings.Replace(initialize, "{", "{"+strings.Repeat(" ", maxBody-len(initialize)), 1)
	for _, size := range []int64{-1, maxBody} {
		if n := stall(16, 1, size); n != 0 {
			t.Errorf("%d bodies of one byte are refused", n)
		}
		if got := post(1, -1, strings.NewReader(long)); got != http.StatusOK {
			t.Errorf("a long one of the same client: %d", got)
		}
	}
	if n := stall(8, maxBody-1, -1); n == 0 || n == 8 {
		t.Errorf("%d of 8 long ones are refused", n)
	}
	for id := range uint32(2) {
		if got := post(id+1, -1, strings.NewReader(initialize)); got != http.StatusOK {
			t.Errorf("a short one of client %d: %d", id+1, got)
		}
	}
	if got := post(2, -1, strings.NewReader(long)); got != http.StatusOK {
		t.Errorf("a long one of another client: %d", got)
	}
}
