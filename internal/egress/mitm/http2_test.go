package mitm

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A raw HTTP/2 client.
type rawClient struct {
	*http2.Framer
	conn   *tls.Conn
	fields bytes.Buffer
	coder  *hpack.Encoder
	open   bool // requests have a body
}

func newRaw(t testing.TB, m *middle) *rawClient {
	t.Helper()
	c := &rawClient{conn: m.dial(t, "example.com", protoH2)}
	if p := c.conn.ConnectionState().NegotiatedProtocol; p != protoH2 {
		t.Fatalf("the protocol is %q", p)
	}
	c.Framer, c.coder = http2.NewFramer(c.conn, c.conn), hpack.NewEncoder(&c.fields)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *rawClient) ask(stream uint32, fields ...string) error {
	c.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := c.coder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.fields.Bytes(), EndStream: !c.open, EndHeaders: true})
}

// answer returns the status of the stream, or "reset" or "gone".
func (c *rawClient) answer(stream uint32) (string, error) {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "gone", err
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status"), nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset", nil
			}
		case *http2.GoAwayFrame:
			return "gone", nil
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := c.WriteSettingsAck(); err != nil {
					return "", err
				}
			}
		}
	}
}

// An h2Case is one line of testdata/http2.jsonl: the fields of a request.
type h2Case struct {
	ID, Name string
	Fields   []string
	Want     string
	Seen     bool // by the handler
}

// TestHTTP2Cases: every stream is for the host of its connection, and has one reading.
func TestHTTP2Cases(t *testing.T) {
	var seen atomic.Int64
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Host != "example.com" || r.URL.Host != "example.com" || r.URL.Scheme != "https" || len(r.Header["Host"]) > 0 {
			t.Errorf("the handler is given %s, host %q, header %v", r.URL, r.Host, r.Header)
		}
		seen.Add(1)
	})})
	for _, c := range readCases[h2Case](t, "testdata/http2.jsonl") {
		seen.Store(0)
		raw := newRaw(t, m)
		err := raw.ask(1, c.Fields...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := raw.answer(1)
		if got != c.Want || c.Seen != (seen.Load() == 1) {
			t.Errorf("%s %s: %s, %v, want %s; seen %d", c.ID, c.Name, got, err, c.Want, seen.Load())
		}
		raw.conn.Close()
	}
}

// TestHT09EachStream: on one connection, streams for another host are refused one by one,
// and the others go on.
func TestHT09EachStream(t *testing.T) {
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // ends nothing but the stream
	})})
	raw := newRaw(t, m)
	for i, host := range []string{"example.com", "other.example.com", "example.com"} {
		stream := uint32(2*i + 1)
		if err := raw.ask(stream, ":method", "GET", ":scheme", "https", ":authority", host, ":path", "/"); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "200", false: "421"}[host == "example.com"]
		if got, err := raw.answer(stream); got != want {
			t.Errorf("stream %d for %s: %s, %v, want %s", stream, host, got, err, want)
		}
	}
	m.awaitCode(t, "host")
	raw.conn.Close()
	m.awaitError(t, "other.example.com")
}

// TestRapidReset: streams that are reset as soon as they are open never have more
// handlers at work than may be open (CVE-2023-44487).
func TestRapidReset(t *testing.T) {
	var now, most atomic.Int64
	release := make(chan struct{})
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Limits: Limits{Streams: 50}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		<-release
		now.Add(-1)
	})})
	raw := newRaw(t, m)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := raw.ReadFrame(); err != nil {
				ended <- err
				return
			}
		}
	}()
	var err error
	for i := 0; i < 20_000 && err == nil; i++ {
		stream := uint32(2*i + 1)
		if err = raw.ask(stream, ":method", "GET", ":scheme", "https", ":authority", "example.com", ":path", "/"); err == nil {
			err = raw.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
	}
	if err := <-ended; err == nil {
		t.Error("the connection has not ended")
	}
	close(release)
	if most.Load() > 50 {
		t.Errorf("%d handlers at once", most.Load())
	}
}

// TestContinuationFlood: a head that never ends is cut off, and costs no memory
// (CVE-2023-45288).
func TestContinuationFlood(t *testing.T) {
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") })})
	raw := newRaw(t, m)
	raw.fields.Reset()
	if err := raw.coder.WriteField(hpack.HeaderField{Name: "x", Value: "y"}); err != nil {
		t.Fatal(err)
	}
	block := raw.fields.Bytes()
	err := raw.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
	wide := bytes.Repeat(block, 2000)
	sent := 0
	for err == nil && sent < 256<<20 {
		err = raw.WriteContinuation(1, false, wide)
		sent += len(wide)
	}
	if err == nil {
		t.Errorf("%d bytes of a head were taken", sent)
	}
}

// TestManyHostileConnections: connections that send garbage, stop half way or are gone
// leave nothing behind.
func TestManyHostileConnections(t *testing.T) {
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.NotFoundHandler(), Limits: Limits{Handshake: time.Second, Head: time.Second}})
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				if err := hostile(m, i+n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for range 5000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

func hostile(m *middle, kind int) error {
	o := &tls.Config{RootCAs: m.issuer.pool(), ServerName: "example.com", NextProtos: []string{protoH2, protoH1}}
	if kind%6 == 0 {
		o.ServerName = "evil.test"
	}
	if kind%2 == 0 {
		o.NextProtos = []string{protoH1}
	}
	conn, err := tls.Dial("tcp", m.address, o)
	if kind%6 == 0 {
		if err == nil {
			return errors.New("another name was served")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	switch kind % 6 {
	case 1:
		_, _ = io.WriteString(conn, http2.ClientPreface+"\x00\x00\xff\x01\x00\x00\x00\x00\x01garbage")
	case 2:
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: exam")
	case 3:
		_, _ = io.WriteString(conn, "\x16\x03\x01")
	case 4:
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000\r\n\r\nhalf")
	}
	return conn.NetConn().Close()
}

// TestHTTP2AnsweredEarly: a reply to a body that nobody reads is not followed by a reset.
func TestHTTP2AnsweredEarly(t *testing.T) {
	answered := make(chan struct{})
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := errors.Join(ignored(io.WriteString(w, "no")), http.NewResponseController(w).Flush()); err != nil {
			t.Error(err)
		}
		close(answered)
	})})
	raw := newRaw(t, m)
	raw.open = true
	if err := raw.ask(1, ":method", "POST", ":scheme", "https", ":path", "/", ":authority", "example.com", "content-length", "4"); err != nil {
		t.Fatal(err)
	}
	<-answered
	if err := raw.WriteData(1, true, []byte("body")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		f, err := raw.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID != 1 {
			continue
		}
		got = append(got, f.Header().Type.String())
		if f.Header().Flags.Has(http2.FlagDataEndStream) || len(got) > 3 {
			break
		}
	}
	if err := raw.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := raw.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := f.(*http2.PingFrame); ok {
			return
		}
		if _, ok := f.(*http2.RSTStreamFrame); ok {
			t.Fatalf("after %q the stream is reset", got)
		}
	}
}

func ignored(_ int, err error) error { return err }
