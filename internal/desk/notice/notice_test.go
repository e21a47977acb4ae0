package notice

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// carrier answers with statuses, one after another.
type carrier struct {
	statuses []int
	bodies   []string
}

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.bodies = append(c.bodies, string(body))
	s := c.statuses[0]
	if len(c.statuses) > 1 {
		c.statuses = c.statuses[1:]
	}
	if s == 0 {
		return nil, errors.New("nobody there")
	}
	return &http.Response{StatusCode: s, Body: io.NopCloser(strings.NewReader("moved"))}, nil
}

// TestFlood (N2, N3): a thousand questions in ten seconds are two notices, which say how many
// there were, and nobody who asks waits.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		o := Options{Run: func(_ context.Context, text string) error { told = append(told, text); return nil }}
		n := New(o)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		for range 1000 {
			n.Asked("delete\x1b[2J", "s1", "coder/\nclaude")
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Minute)
		stop()
		<-done
		if len(told) != 2 || told[0] != "coder/_claude, session s1, asks for your approval (delete__2J)" || !strings.HasPrefix(told[1], "64 questions wait") {
			t.Errorf("%d notices: %q", len(told), told)
		}
	})
}

// TestPost: what does not arrive is sent again a few times, and what is refused is not; no
// redirect is followed.
func TestPost(t *testing.T) {
	for _, c := range []struct {
		statuses []int
		sent     int
		failed   bool
	}{
		{[]int{204}, 1, false}, {[]int{500, 0, 200}, 3, false}, {[]int{503}, tries, true}, {[]int{0}, tries, true}, {[]int{400}, 1, true}, {[]int{302}, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var failed error
			to := &carrier{statuses: c.statuses}
			n := New(Options{URL: "https://hooks.example/a", Carrier: to, Key: []byte("k"), Failed: func(err error) { failed = err }})
			n.tell(t.Context(), Notice{Kind: "call", Waiting: 1, Session: "s", Agent: "a"})
			if len(to.bodies) != c.sent || (failed != nil) != c.failed {
				t.Errorf("%v: sent %d times, %v", c.statuses, len(to.bodies), failed)
			}
		})
	}
}
