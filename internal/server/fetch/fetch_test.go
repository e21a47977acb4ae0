package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A web answers requests without a network and keeps them.
type web struct {
	answer func(*http.Request) (*http.Response, error)
	got    []*http.Request
}

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.got = append(w.got, r)
	return w.answer(r)
}

func page(status int, header map[string]string, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for k, v := range header {
			h.Set(k, v)
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func connect(t *testing.T, o Options) *mcp.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, inR, outW, o) }()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		cancel()
	})
	return c
}

func fetch(t *testing.T, w *web, args string) map[string]any {
	t.Helper()
	o := Options{}
	if w != nil {
		o.Transport = w
	}
	res, err := connect(t, o).CallTool(t.Context(), &mcp.CallToolParams{Name: "http_fetch", Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(out, res.StructuredContent) {
		t.Errorf("text %v, data %v", out, res.StructuredContent)
	}
	if _, failed := out["error"]; failed != res.IsError {
		t.Errorf("%v, but isError is %v", out, res.IsError)
	}
	return out
}

func TestDefinitions(t *testing.T) {
	list, err := connect(t, Options{}).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) != 1 || list.Tools[0].Name != "http_fetch" {
		t.Fatalf("%v", list.Tools)
	}
	schema := list.Tools[0].InputSchema.(map[string]any)
	args := schema["properties"].(map[string]any)
	for name, want := range map[string]any{"url": nil, "headers": nil, "max_length": 5000.0, "format": "markdown", "timeout": 30.0} {
		a, ok := args[name].(map[string]any)
		if !ok || a["default"] != want {
			t.Errorf("%s is %v", name, args[name])
		}
	}
	if len(args) != 5 || !reflect.DeepEqual(schema["required"], []any{"url"}) {
		t.Errorf("%v", schema)
	}
}

// FE1, FE2: what is sent.
func TestRequest(t *testing.T) {
	w := &web{answer: page(200, nil, "")}
	fetch(t, w, `{"url":"HTTPS://Example.COM:443/a/../b?q#frag","headers":{"accept-language":"de"}}`)
	r := w.got[0]
	if r.Method != http.MethodGet || r.URL.String() != "https://example.com/b?q" || r.Body != nil {
		t.Errorf("%s %s", r.Method, r.URL)
	}
	want := http.Header{"Accept": {defaultTypes}, "Accept-Language": {"de"}, "User-Agent": {userAgent}}
	if !reflect.DeepEqual(r.Header, want) {
		t.Errorf("%v, want %v", r.Header, want)
	}
}

// Calls that are refused before anything is sent: arguments and part of the error.
func TestRefused(t *testing.T) {
	for args, want := range map[string]string{
		`{}`:                     "url",
		`{"url":"example.com"}`:  "url",
		`{"url":"file:///etc"}`:  "url",
		`{"url":"ws://x/"}`:      "scheme",
		`{"url":"ftp://x/"}`:     "url",
		`{"url":"http://u:p@x"}`: "user or password",
		`{"url":"http://x/","headers":{"Authorization":"x"}}`:     "cannot be set",
		`{"url":"http://x/","headers":{"cookie":"x"}}`:            "cannot be set",
		`{"url":"http://x/","headers":{"Host":"y"}}`:              "cannot be set",
		`{"url":"http://x/","headers":{"X-Forwarded-For":"y"}}`:   "cannot be set",
		`{"url":"http://x/","headers":{"Accept":"a\r\nHost: y"}}`: "printable",
		`{"url":"http://x/","method":"POST"}`:                     "reading arguments",
		`{"url":"http://x/","url":"http://y/"}`:                   "duplicate",
		`{"url":"http://x/","max_length":0}`:                      "max_length",
		`{"url":"http://x/","max_length":1000001}`:                "max_length",
		`{"url":"http://x/","timeout":61}`:                        "timeout",
		`{"url":"http://x/","timeout":0.5}`:                       "timeout",
		`{"url":"http://x/","format":"pdf"}`:                      "format",
		`{"url":"http://x/` + strings.Repeat("a", maxURL) + `"}`:  "bytes",
	} {
		w := &web{answer: page(200, nil, "")}
		got, _ := fetch(t, w, args)["error"].(string)
		if !strings.Contains(got, want) || len(w.got) > 0 {
			t.Errorf("%s: %q, want %q; %d requests", args, got, want, len(w.got))
		}
	}
	if got := fetch(t, nil, `{"url":"http://x/"}`)["error"]; got != "no network way out configured" {
		t.Errorf("without a transport: %v", got)
	}
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("é", 6000)
	for name, c := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		args   string
		want   string // JSON, compared whole
	}{
		"json": {
			page(200, map[string]string{"Content-Type": "application/json", "Etag": `"x"`, "Set-Cookie": "s=1"}, `{"a":"<b>"}`), "",
			`{"status":200,"headers":{"content-type":"application/json","etag":"\"x\""},"body":"{\"a\":\"<b>\"}","truncated":false}`,
		},
		"html": {
			page(404, map[string]string{"Content-Type": "text/html"}, `<h1>No</h1>`), "",
			`{"status":404,"headers":{"content-type":"text/html"},"body":"# No","truncated":false}`,
		},
		"text of html": {
			page(200, map[string]string{"Content-Type": "text/html"}, `<h1>No</h1>`), `,"format":"text"`,
			`{"status":200,"headers":{"content-type":"text/html"},"body":"No","truncated":false}`,
		},
		"html of html": {
			page(200, map[string]string{"Content-Type": "text/html"}, `<h1>No</h1>`), `,"format":"html"`,
			`{"status":200,"headers":{"content-type":"text/html"},"body":"<h1>No</h1>","truncated":false}`,
		},
		"charset": {
			page(200, map[string]string{"Content-Type": "text/plain; charset=iso-8859-1"}, "caf\xe9"), "",
			`{"status":200,"headers":{"content-type":"text/plain; charset=iso-8859-1"},"body":"café","truncated":false}`,
		},
		"charset of the page": {
			page(200, map[string]string{"Content-Type": "text/html"}, "<meta charset=windows-1251><p>\xcf\xf0"), "",
			`{"status":200,"headers":{"content-type":"text/html"},"body":"Пр","truncated":false}`,
		},
		"no type": {page(200, nil, "plain"), "", `{"status":200,"headers":{},"body":"plain","truncated":false}`},
		"length": {
			page(200, map[string]string{"Content-Type": "text/plain"}, long), `,"max_length":3`,
			`{"status":200,"headers":{"content-type":"text/plain"},"body":"ééé","truncated":true}`,
		},
		"default length": {
			page(200, map[string]string{"Content-Type": "text/plain"}, long), "",
			`{"status":200,"headers":{"content-type":"text/plain"},"body":"` + long[:10000] + `","truncated":true}`,
		},
		"binary": {
			page(200, map[string]string{"Content-Type": "application/pdf"}, "%PDF"), "",
			`{"status":200,"headers":{"content-type":"application/pdf"},"body":"","truncated":false,"note":"The answer is application/pdf, which has no text form here (4 bytes)."}`,
		},
		"redirect": {
			page(302, map[string]string{"Location": "../new?x"}, "moved"), "",
			`{"status":302,"headers":{"location":"https://example.com/new?x"},"body":"","truncated":false,"note":"Redirect, not followed. Call http_fetch with the new address if it is wanted."}`,
		},
		"redirect to a file": {
			page(301, map[string]string{"Location": "file:///etc/passwd"}, ""), "",
			`{"status":301,"headers":{},"body":"","truncated":false,"note":"Redirect to an address that cannot be fetched. Not followed."}`,
		},
		"gzip": {
			page(200, map[string]string{"Content-Type": "text/plain", "Content-Encoding": "gzip"}, zipped(t, "small")), "",
			`{"status":200,"headers":{"content-type":"text/plain"},"body":"small","truncated":false}`,
		},
		"unknown encoding": {
			page(200, map[string]string{"Content-Encoding": "br"}, "x"), "",
			`{"error":"reading answer of https://example.com/dir/page: it is encoded as \"br\", which was not asked for"}`,
		},
		"failure": {
			func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }, "",
			`{"error":"fetching https://example.com/dir/page: no route"}`,
		},
	} {
		w := &web{answer: c.answer}
		got := fetch(t, w, `{"url":"`+base+`"`+c.args+`}`)
		var want map[string]any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
		if len(w.got) != 1 {
			t.Errorf("%s: %d requests", name, len(w.got))
		}
	}
}

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FE3: an answer that never ends, in bytes and in time.
func TestEndless(t *testing.T) {
	bomb := zipped(t, strings.Repeat("\x00a", maxBody))
	w := &web{answer: page(200, map[string]string{"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb)}
	if got := fetch(t, w, `{"url":"https://x/"}`); got["truncated"] != true {
		t.Errorf("%v", got["error"])
	}
	w = &web{answer: func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, fmt.Errorf("waiting: %w", r.Context().Err())
	}}
	if got, _ := fetch(t, w, `{"url":"https://x/","timeout":1}`)["error"].(string); !strings.Contains(got, "within 1s") {
		t.Errorf("%s", got)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		if _, err := newServer(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
