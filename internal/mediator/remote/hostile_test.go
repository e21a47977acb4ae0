package remote

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/mediator"
)

// A peer is one connection to a handler, and what went over it.
type peer struct {
	t     *testing.T
	url   string
	in    io.WriteCloser
	out   *bufio.Reader
	p     *mediator.Process
	ended chan error
}

func connect(t *testing.T, kind mediator.Transport, handler http.HandlerFunc) *peer {
	t.Helper()
	srv := httptest.NewServer(handler)
	s := mediator.Server{Name: "far", URL: srv.URL + "/mcp", Type: kind, Headers: map[string]string{"Authorization": "Bearer s3cret"}}
	carrier, err := Reach(nil)(s)
	if err != nil {
		t.Fatal(err)
	}
	p := open(s, carrier, nil, 1<<20)
	c := &peer{t: t, url: srv.URL, in: p.Stdin, out: bufio.NewReaderSize(p.Stdout, 2<<20), p: p, ended: make(chan error, 1)}
	go func() { _, _ = io.Copy(io.Discard, p.Stderr) }()
	go func() { c.ended <- p.Wait() }()
	t.Cleanup(func() {
		p.Kill()
		_, _ = io.Copy(io.Discard, c.out)
		if len(c.ended) == 0 {
			c.ended <- <-c.ended
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return c
}

func (c *peer) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *peer) receive() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("receiving: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// ask sends a request and expects an answer with want in it.
func (c *peer) ask(line, want string) {
	c.t.Helper()
	c.send(line)
	if got := c.receive(); !strings.Contains(got, want) {
		c.t.Errorf("%.100s\n got %.300s\nwant %s", line, got, want)
	}
}

const (
	aCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}`
	aPing = `{"jsonrpc":"2.0","id":8,"method":"ping","params":{}}`
)

// answerPing answers what is not the call that a test is about.
func answerPing(w http.ResponseWriter, r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || !strings.Contains(string(body), `"id":8`) {
		return false
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = io.WriteString(w, "{\"jsonrpc\":\"2.0\",\r\n\"id\":8,\"result\":{}}\n")
	return true
}

func sse(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// TestMC22: whatever a server answers to one request, that request fails with one
// clear error, and the next is served.
func TestMC22(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Error("the redirect was followed:", r.Header) }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		then func(w http.ResponseWriter, r *http.Request)
		want string
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "redirects"},
		"web page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>")
		}, "neither JSON nor an event stream"},
		"no type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "{}")
		}, "content type"},
		"server error":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "SECRET", http.StatusInternalServerError) }, "HTTP 500"},
		"accepted only": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, "did not answer"},
		"error in JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"m"}}`)
		}, `{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"m"}}`},
		"error of others": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`)
		}, "HTTP 400"},
		"bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 64<<20))
			_ = z.Close()
		}, "compressed"},
		"long body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(make([]byte, 2<<20))
		}, "too long"},
		"long event": {func(w http.ResponseWriter, _ *http.Request) { sse(w, "data: "+strings.Repeat("x", 2<<20)+"\n\n") }, "event that is too long"},
		"many lines": {func(w http.ResponseWriter, _ *http.Request) {
			sse(w, strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 2000)+"\n")
		}, "event that is too long"},
		"long field": {func(w http.ResponseWriter, _ *http.Request) { sse(w, "id: "+strings.Repeat("x", 5000)+"\n\n") }, "event with a field"},
		"half a body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"jsonrpc":`)
		}, "broke"},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "hello")
		}, "no message"},
		"batch": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `[{"jsonrpc":"2.0","id":7,"result":{}}]`)
		}, "no message"},
		"of another": {func(w http.ResponseWriter, _ *http.Request) {
			sse(w, "data: {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{\"stolen\":1}}\n\n")
		}, "another request"},
		"only a start": {func(w http.ResponseWriter, _ *http.Request) { sse(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,") }, "broke"},
		"cannot resume": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				http.Error(w, "no", http.StatusMethodNotAllowed)
				return
			}
			sse(w, "id: 1\nretry: 1\n\n")
		}, "could not be taken up again (HTTP 405)"},
		"never answers": {func(w http.ResponseWriter, _ *http.Request) { sse(w, "id: 1\nretry: 1\n\n") }, "5 times did not help"},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
				if !answerPing(w, r) {
					c.then(w, r)
				}
			})
			p.send(aCall)
			if got := p.receive(); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":7`) || strings.Contains(got, "SECRET") {
				t.Errorf("got %.300s\nwant %s", got, c.want)
			}
			p.ask(aPing, `{"jsonrpc":"2.0",  "id":8,"result":{}}`)
		})
	}
}

// TestEndless: a stream without end is left when the request is cancelled.
func TestEndless(t *testing.T) {
	left := make(chan struct{})
	p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
		if answerPing(w, r) {
			return
		}
		sse(w, ": ping\n\n")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, ": ping\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"); err != nil {
				break
			}
			w.(http.Flusher).Flush()
		}
		close(left)
	})
	p.send(aCall)
	p.receive()
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	p.send(aPing)
	for !strings.Contains(p.receive(), `"id":8`) {
	}
	<-left
}

// TestFlood: what a server begins in many answers at once is bounded in all; what is over is
// counted no more.
func TestFlood(t *testing.T) {
	p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
		if !answerPing(w, r) {
			sse(w, "data: "+strings.Repeat("x", 900<<10)+"\ndata: unfinished")
			<-r.Context().Done()
		}
	})
	const calls = maxHeld>>20 + 64
	for i := range calls {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, i+100))
	}
	for range calls - maxHeld/(900<<10) {
		if got := p.receive(); !strings.Contains(got, errFlood.Error()) {
			t.Fatal(got)
		}
	}
	for i := range calls {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i+100))
	}
	p.send(aPing)
	for !strings.Contains(p.receive(), `"id":8`) {
	}
}

// TestRestarts: connections that have ended leave nothing running.
func TestRestarts(t *testing.T) {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return echoServer() }, nil)
	srv := httptest.NewServer(handler)
	defer srv.Close()
	before := 0
	for i := range 60 {
		if i == 20 {
			before = runtime.NumGoroutine()
		}
		tried := mediator.Try(t.Context(), mediator.Options{Starter: New(Options{})}, mediator.Server{Name: "far", URL: srv.URL})
		if tried.Error != "" || tried.Tools != 1 {
			t.Fatalf("%+v", tried)
		}
	}
	for until := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+10; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, after 20 connections %d", runtime.NumGoroutine(), before)
		}
	}
}

// TestSessions: what a session is told, how it ends, and what the end says.
func TestSessions(t *testing.T) {
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
	begin := func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"initialize"`) {
			return false
		}
		w.Header().Set(headerSession, "abc")
		sse(w, `data: {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`+"\n\n")
		return true
	}
	t.Run("farewell", func(t *testing.T) {
		gone := make(chan string, 1)
		p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				gone <- r.Header.Get(headerSession) + " " + r.Header.Get(headerVersion)
			}
			begin(w, r)
		})
		p.ask(initialize, `"protocolVersion":"2025-06-18"`)
		p.in.Close()
		if got := <-gone; got != "abc 2025-06-18" {
			t.Errorf("told %q", got)
		}
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
		p.ended <- nil
	})
	t.Run("forgotten", func(t *testing.T) {
		p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				t.Error("a session that is over is ended")
			}
			if !begin(w, r) {
				http.Error(w, "no such session", http.StatusNotFound)
			}
		})
		p.ask(initialize, "result")
		p.send(aCall)
		if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "session") {
			t.Error(err)
		}
		p.ended <- nil
	})
	t.Run("unauthorized", func(t *testing.T) {
		p := connect(t, "", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		p.send(initialize)
		if err := <-p.ended; err == nil || !strings.Contains(err.Error(), "HTTP 401") || strings.Contains(err.Error(), "s3cret") {
			t.Error(err)
		}
		p.ended <- nil
	})
	t.Run("strange id", func(t *testing.T) {
		p := connect(t, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerSession, strings.Repeat("x", 2000))
			sse(w, "")
		})
		p.ask(initialize, "id that cannot be one")
	})
	t.Run("unreachable", func(t *testing.T) {
		p := connect(t, "", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		p.ask(initialize, "could not be reached, or closed the connection")
	})
}

// TestResume: an answer whose events are numbered is taken up again behind the last one.
func TestResume(t *testing.T) {
	p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			sse(w, "id: e1\nretry: 1\ndata:\n\n")
		case r.Header.Get(headerLast) == "e1":
			sse(w, "id: e2\r\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/progress\"}\r\n\r\n")
		case r.Header.Get(headerLast) == "e2":
			sse(w, "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
		}
	})
	p.ask(aCall, `{"jsonrpc":"2.0", "method":"notifications/progress"}`)
	if got := p.receive(); got != `{"jsonrpc":"2.0","id":7,"result":{}}` {
		t.Error(got)
	}
}

// TestMadeIn: a request of the server belongs to the call in whose answer it came; one
// that comes outside of answers belongs to none.
func TestMadeIn(t *testing.T) {
	answer := make(chan string)
	p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodGet:
			sse(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\n")
			<-r.Context().Done()
		case strings.Contains(string(body), `initialized"`):
			w.WriteHeader(http.StatusAccepted)
		case strings.Contains(string(body), `"result"`):
			w.WriteHeader(http.StatusAccepted)
			answer <- string(body)
		default:
			sse(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\"}\n\n")
			sse(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":"+<-answer+"}\n\n")
		}
	})
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := p.receive(); !strings.Contains(got, "roots/list") || p.p.About([]byte(`"q"`)) != 0 {
		t.Error(got)
	}
	p.ask(aCall, "elicitation/create")
	if in := p.p.About([]byte("1")); in != 7 {
		t.Errorf("the request belongs to %d", in)
	}
	p.ask(`{"jsonrpc":"2.0","id":1,"result":{}}`, `"id":7,"result":{"jsonrpc":"2.0","id":1,"result":{}}`)
}

// An id of the server is in use once, as long as the answer that it came in goes on.
func TestMadeBy(t *testing.T) {
	c := &conn{about: map[string]int64{}, flights: map[int64]context.CancelFunc{7: func() {}, 8: func() {}}}
	m := message{id: []byte("1")}
	if !c.madeBy(m, 7) || c.madeBy(m, 8) || c.madeIn([]byte("1")) != 7 {
		t.Errorf("in use: %v", c.about)
	}
	delete(c.flights, 7)
	if c.madeIn([]byte("1")) != 7 || !c.madeBy(m, 8) || c.madeIn([]byte("1")) != 8 {
		t.Errorf("over: %v", c.about)
	}
	for i := range 2 * maxFlights {
		c.madeBy(message{id: fmt.Append(nil, i)}, 8)
	}
	if len(c.about) > maxFlights {
		t.Errorf("%d are kept", len(c.about))
	}
}

// TestOlder: the older transport is told where to post, and that is nowhere else.
func TestOlder(t *testing.T) {
	for name, c := range map[string]struct{ endpoint, want string }{
		"own":      {"/messages?id=1", `"id":7,"result":{"path":"/messages?id=1"}`},
		"relative": {"messages", `"id":7,"result":{"path":"/messages"}`},
		"host":     {"http://example.com/messages", "another host"},
		"scheme":   {"https://127.0.0.1/", "another host"},
		"userinfo": {"//u:p@127.0.0.1/", "another host"},
	} {
		t.Run(name, func(t *testing.T) {
			out := make(chan string, 1)
			p := connect(t, mediator.TransportSSE, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					out <- fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"path\":%q}}\n\n", r.URL.RequestURI())
					w.WriteHeader(http.StatusAccepted)
					return
				}
				sse(w, "event: endpoint\ndata: "+c.endpoint+"\n\n")
				select {
				case text := <-out:
					sse(w, text)
				case <-r.Context().Done():
				}
				<-r.Context().Done()
			})
			p.send(aCall)
			if !strings.Contains(c.want, "result") {
				if err := <-p.ended; err == nil || !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				p.ended <- nil
				return
			}
			if got := p.receive(); !strings.Contains(got, c.want) {
				t.Error(got)
			}
		})
	}
}

// TestFar: other machines are reached by what is given for them alone, and what is missing
// is named; this machine is not reached by that.
func TestFar(t *testing.T) {
	for _, url := range []string{"https://example.com/mcp", "http://10.0.0.1/", "http://[::ffff:192.0.2.1]/", "http://0.0.0.0/"} {
		s := mediator.Server{Name: "far", URL: url}
		if _, err := New(Options{}).Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "in a session") {
			t.Errorf("%s: %v", url, err)
		}
		carrier, err := Reach(refusing{})(s)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := carrier.RoundTrip(r); !errors.Is(err, errRefusing) {
			closeBody(resp)
			t.Errorf("%s was not carried by what is for other machines: %v", url, err)
		}
		r.URL.Host = "127.0.0.1:1"
		if resp, err := carrier.RoundTrip(r); err == nil || errors.Is(err, errRefusing) {
			closeBody(resp)
			t.Errorf("this machine was reached by what is for others: %v", err)
		}
	}
}

var errRefusing = errors.New("refused")

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errRefusing }

func closeBody(resp *http.Response) {
	if resp != nil {
		resp.Body.Close()
	}
}
