package mitm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// servers answers by path what tests ask for.
func servers(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/echo":
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Te", r.Header.Get("Te"))
		w.Header().Set("Trailer", "X-Sum")
		sum := sha256.New()
		_, err := io.Copy(io.MultiWriter(w, sum), r.Body)
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
		w.Header().Set(http.TrailerPrefix+"X-Late", r.Trailer.Get("X-Sent"))
		if err != nil {
			w.Header().Set("X-Sum", err.Error())
		}
	case "/talk": // as a call of gRPC that streams both ways
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.(http.Flusher).Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			_, _ = io.WriteString(w, "heard "+line)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	case "/hints":
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusOK)
	case "/moved":
		http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
	case "/head":
		w.Header().Set("Content-Length", "1000000")
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/cut":
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/refuse":
		http.Error(w, "no", http.StatusExpectationFailed)
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = io.WriteString(zip, strings.Repeat("a secret ", 10_000))
		_ = zip.Close()
	case "/bomb":
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		zeros := make([]byte, 1<<20)
		for range 4096 {
			if _, err := zip.Write(zeros); err != nil {
				return
			}
		}
	case "/brotli":
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "a secret")
	default:
		http.NotFound(w, r)
	}
}

func eachProtocol(t *testing.T, f func(t *testing.T, m *middle, c *http.Client)) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[h2], func(t *testing.T) {
			m, _ := upstream(t, &Forwarder{}, servers)
			c := m.client(h2)
			t.Cleanup(c.CloseIdleConnections)
			f(t, m, c)
		})
	}
}

func ask(t testing.TB, c *http.Client, method, path string, body io.Reader, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://example.com"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestBodiesAndTrailers: bodies of any length and trailers pass both ways, HTTP/2 is
// spoken with upstream whatever the client speaks.
func TestBodiesAndTrailers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *middle, c *http.Client) {
		for _, n := range []int{0, 1, 100, copyPiece, 3 << 20} {
			sent := bytes.Repeat([]byte("x"), n)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/echo", io.NopCloser(bytes.NewReader(sent)))
			if err != nil {
				t.Fatal(err)
			}
			r.Trailer = http.Header{"X-Sent": {"yes"}}
			r.Header.Set("Te", "trailers")
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			sum := fmt.Sprintf("%x", sha256.Sum256(sent))
			if err != nil || !bytes.Equal(got, sent) || res.Trailer.Get("X-Sum") != sum || res.Trailer.Get("X-Late") != "yes" ||
				res.Header.Get("X-Proto") != "HTTP/2.0" || res.Header.Get("X-Te") != "trailers" {
				t.Errorf("%d bytes: %d back, %v, header %v, trailer %v", n, len(got), err, res.Header, res.Trailer)
			}
		}
	})
}

// TestTalk: what one side says reaches the other while both are still speaking.
func TestTalk(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *middle, c *http.Client) {
		r, w := io.Pipe()
		res := ask(t, c, http.MethodPost, "/talk", r, http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}})
		lines := bufio.NewReader(res.Body)
		for i := range 100 {
			if _, err := fmt.Fprintf(w, "%d\n", i); err != nil {
				t.Fatal(err)
			}
			if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("heard %d\n", i) {
				t.Fatalf("%q, %v", line, err)
			}
		}
		w.Close()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%q, %v, %v", rest, err, res.Trailer)
		}
	})
}

// TestSmallThings: each case of a reply with something special about it.
func TestSmallThings(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *middle, c *http.Client) {
		var informed []int
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			informed = append(informed, code)
			return nil
		}}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://example.com/hints", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if len(informed) > 0 || res.Header.Get("Alt-Svc") != "" || res.Header.Get("Keep-Alive") != "" || res.Header.Get("Set-Cookie") != "a=b" {
			t.Errorf("HT-25: %v %v", informed, res.Header)
		}
		if res := ask(t, c, http.MethodGet, "/moved", nil, nil); res.StatusCode != http.StatusFound {
			t.Errorf("HT-05: a redirect is not the client's: %d", res.StatusCode)
		}
		if res := ask(t, c, http.MethodHead, "/head", nil, nil); res.ContentLength != 1_000_000 {
			t.Errorf("HEAD: a length of %d", res.ContentLength)
		}
		if res := ask(t, c, http.MethodGet, "/empty", nil, nil); res.StatusCode != http.StatusNoContent {
			t.Errorf("204: %d", res.StatusCode)
		}
		if body, err := io.ReadAll(ask(t, c, http.MethodGet, "/cut", nil, nil).Body); err == nil {
			t.Errorf("HT-29: half a reply counts as whole: %q", body)
		}
	})
}

// TestContinue: a body that upstream does not want is never asked for.
func TestContinue(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *middle, c *http.Client) {
		for path, want := range map[string]int{"/refuse": http.StatusExpectationFailed, "/echo": http.StatusOK} {
			body := &watchedBody{Reader: strings.NewReader("hello")}
			res := ask(t, c, http.MethodPost, path, body, http.Header{"Expect": {"100-continue"}})
			got, err := io.ReadAll(res.Body)
			if res.StatusCode != want || err != nil || want == http.StatusOK && string(got) != "hello" {
				t.Errorf("%s: %d %q %v", path, res.StatusCode, got, err)
			}
		}
	})
}

type watchedBody struct{ io.Reader }

// TestHT28Upstream: who does not prove to be the host is not spoken to.
func TestHT28Upstream(t *testing.T) {
	f := &Forwarder{}
	_, server := upstream(t, f, servers)
	m := newMiddle(t, Options{Host: mustHost(t, "other.test"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := f.Forward(w, r)
		if err == nil {
			t.Error("a server with the certificate of another is spoken to")
		}
	})})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://other.test/echo", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.client(false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d of %s", res.StatusCode, server.URL)
	}
}

// A marker replaces "secret" with "xxxxxx", or refuses it.
type marker struct {
	refuse bool
	held   []byte
}

func (m *marker) Push(piece []byte) ([]byte, error) {
	m.held = append(m.held, piece...)
	if bytes.Contains(m.held, []byte("secret")) {
		if m.refuse {
			return nil, refusal("content", "a secret")
		}
		m.held = bytes.ReplaceAll(m.held, []byte("secret"), []byte("xxxxxx"))
	}
	keep := min(len(m.held), len("secret")-1)
	out := slices.Clone(m.held[:len(m.held)-keep])
	m.held = slices.Clone(m.held[len(m.held)-keep:])
	return out, nil
}

func (m *marker) End() ([]byte, error) { return m.held, nil }

// TestFilters: bodies are looked at as they pass, packed ones too; what cannot be is
// refused, and so is what grows without end.
func TestFilters(t *testing.T) {
	f := &Forwarder{
		Request: func(http.Header) Filter { return &marker{refuse: true} },
		Reply:   func(http.Header) Filter { return &marker{} },
	}
	m, _ := upstream(t, f, servers)
	for _, h2 := range []bool{false, true} {
		c := m.client(h2)
		body, err := io.ReadAll(ask(t, c, http.MethodGet, "/gzip", nil, nil).Body)
		if err != nil || string(body) != strings.Repeat("a xxxxxx ", 10_000) {
			t.Errorf("h2 %v: a packed reply: %.40q, %v", h2, body, err)
		}
		if res := ask(t, c, http.MethodGet, "/brotli", nil, nil); res.StatusCode != http.StatusBadGateway {
			t.Errorf("h2 %v: an unknown packing: %d", h2, res.StatusCode)
		}
		if n, err := io.Copy(io.Discard, ask(t, c, http.MethodGet, "/bomb", nil, nil).Body); err == nil || n > 80<<20 {
			t.Errorf("HT-23: h2 %v: %d bytes of a bomb, %v", h2, n, err)
		}
		plain := strings.Repeat("nothing to see here ", 10_000)
		for _, packed := range []bool{false, true} {
			header, sent := http.Header{}, []byte(plain)
			bad := []byte(plain + "a sec" + "ret" + plain)
			if packed {
				header.Set("Content-Encoding", "gzip")
				sent, bad = pack(t, sent), pack(t, bad)
			}
			got, err := io.ReadAll(ask(t, c, http.MethodPost, "/echo", bytes.NewReader(sent), header).Body)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("h2 %v, packed %v: %d bytes of a request arrive of %d, %v", h2, packed, len(got), len(sent), err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/echo", bytes.NewReader(bad))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header
			res, err := c.Do(r)
			if err == nil {
				got, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if err == nil && res.StatusCode == http.StatusOK || len(got) > len(plain) {
				t.Errorf("h2 %v, packed %v: a secret goes out: %d bytes came back, %v", h2, packed, len(got), err)
			}
		}
	}
}

func pack(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(b)
	if err := errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBackPressure: who does not read stops who writes.
func TestBackPressure(t *testing.T) {
	wrote := make(chan int64, 1)
	m, _ := upstream(t, &Forwarder{}, func(w http.ResponseWriter, r *http.Request) {
		var n int64
		piece := make([]byte, 1<<20)
		for n < 1<<30 && r.Context().Err() == nil {
			k, err := w.Write(piece)
			if n += int64(k); err != nil {
				break
			}
			if n == 1<<20 {
				w.(http.Flusher).Flush()
			}
		}
		wrote <- n
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.client(true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	if n := <-wrote; n > 64<<20 {
		t.Errorf("%d bytes were written for a client that read one million", n)
	}
}

// TestHT23ConstantMemory: a body of 256 MiB passes, up and down at once, in the memory of a
// few pieces.
func TestHT23ConstantMemory(t *testing.T) {
	const whole = 256 << 20
	m, _ := upstream(t, &Forwarder{}, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var most uint64
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/", io.LimitReader(zeros{}, whole))
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.client(false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var n int64
	for piece := make([]byte, 1<<20); ; {
		k, err := res.Body.Read(piece)
		if before := n >> 24; (n+int64(k))>>24 != before {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
		}
		if n += int64(k); err != nil {
			break
		}
	}
	if n != whole || most > before.HeapInuse+32<<20 {
		t.Errorf("%d bytes passed; the heap grew from %d to %d", n, before.HeapInuse, most)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
