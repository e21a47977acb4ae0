package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/egress/provider"
	"ringfence/internal/egress/registry"
)

// service is a provider that answers with a stream, and says what it was sent.
func service(t *testing.T) (s *httptest.Server, heard *[]string) {
	t.Helper()
	heard = &[]string{}
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*heard = append(*heard, fmt.Sprintf("%s %s %s %s", r.Method, r.RequestURI, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"), b))
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"data":[]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hello\"}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}\n\n")
	}))
	t.Cleanup(s.Close)
	return s, heard
}

// modelRig is a way out to a service at site.test, whose key is on loan.
func modelRig(t *testing.T, s *httptest.Server, rules ...string) *rig {
	t.Helper()
	at := "http://site.test:" + port(s)
	models, err := provider.New([]provider.Provider{{
		Name: "ours", URL: at, Keys: []string{"x-api-key", "Authorization"},
		Endpoints: []provider.Endpoint{{Method: "POST", Path: "/v1/messages", Wire: provider.Messages}, {Method: "GET", Path: "/v1/models"}, {Method: "POST", Path: "/log", Quiet: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	host, err := weburl.ParseHost("site.test")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) {
		o.Models = models
		o.Sentinels = []loan.Sentinel{{Name: "key", Text: "sk-stand-in", Bindings: []loan.Binding{{
			Plain: true, Host: host.String(), Port: uint16Of(t, port(s)), Position: loan.Position{Header: "x-api-key", Form: "{}"},
		}}}}
	}, rules...)
	r.lend = []act.Loan{{Name: "key", Sentinel: "sk-stand-in", Value: "sk-real-key"}}
	return r
}

func uint16Of(t *testing.T, s string) (n uint16) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func post(at, path, head, body string) string {
	return fmt.Sprintf("POST http://%s%s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", at, path, at, head, len(body), body)
}

func TestModels(t *testing.T) {
	s, heard := service(t)
	at := "site.test:" + port(s)
	allowed := []string{"allow send http://" + at + "/v1/messages", "allow fetch http://" + at + "/v1/models", "allow infer ours*", "allow use-secret key"}
	const ask = `{"model":"m","messages":[],"stream":true,"tools":[{"type":"web_search_20250305"}]}`
	for _, c := range []struct {
		name, text string
		status     int
		says       string // in the answer
		heard      string // by the service; "" is nothing
		ended      string // of the record
	}{
		{
			"asked, cleaned, with the key", post(at, "/v1/messages", "x-api-key: sk-stand-in\r\n", ask), 200, "hello",
			`POST /v1/messages sk-real-key {"messages":[],"model":"m","stream":true}`, `200`,
		},
		{"a list", "GET http://" + at + "/v1/models HTTP/1.1\r\nHost: " + at + "\r\nx-api-key: sk-stand-in\r\n\r\n", 200, "data", "GET /v1/models sk-real-key ", "200"},
		{"a key of its own", post(at, "/v1/messages", "x-api-key: sk-foreign\r\n", ask), 403, "permission_error", "", "a key of its own"},
		{"a second key", post(at, "/v1/messages", "x-api-key: sk-stand-in\r\nAuthorization: Bearer other\r\n", ask), 403, "key of its own", "", "a key of its own"},
		{"another path", post(at, "/v1/files", "", "{}"), 403, "not among", "", ""},
		{"another method", "GET http://" + at + "/v1/messages HTTP/1.1\r\nHost: " + at + "\r\n\r\n", 403, "not among", "", ""},
		{"telemetry", post(at, "/log", "", `{"a":1}`), 200, "{}", "", ""},
		{"no JSON", post(at, "/v1/messages", "", `{"model":"m","model":"n"}`), 400, "invalid_request_error", "", "one meaning"},
		{"compressed", post(at, "/v1/messages", "Content-Encoding: gzip\r\n", ask), 400, "compressed", "", "compressed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			*heard = nil
			r := modelRig(t, s, allowed...)
			res, _, _ := r.ask(t, c.text)
			if got := body(t, res); res.StatusCode != c.status || !strings.Contains(got, c.says) {
				t.Errorf("%d %q", res.StatusCode, got)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(*heard, "\n"); got != c.heard {
				t.Errorf("heard %q, want %q", got, c.heard)
			}
			if ended := strings.Join(r.ended, "\n"); !strings.Contains(ended, c.ended) {
				t.Errorf("ended %q, want %q", ended, c.ended)
			}
		})
	}
}

// TestModelDenied: what a policy does not allow of a model reaches no provider.
func TestModelDenied(t *testing.T) {
	s, heard := service(t)
	at := "site.test:" + port(s)
	r := modelRig(t, s, "allow send http://"+at+"/v1/messages", "allow use-secret key", "allow infer ours/other")
	res, _, _ := r.ask(t, post(at, "/v1/messages", "x-api-key: sk-stand-in\r\n", `{"model":"m","messages":[]}`))
	if got := body(t, res); res.StatusCode != 403 || !strings.Contains(got, `"type":"error"`) || len(*heard) > 0 {
		t.Errorf("%d %q, heard %q", res.StatusCode, got, *heard)
	}
	if !slices.Contains(r.decider.asked, "send http://"+at+"/v1/messages, use-secret key, infer ours/m") {
		t.Errorf("asked %q", r.decider.asked)
	}
}

// TestUsageIsRecorded: what an answer used is in the result.
func TestUsageIsRecorded(t *testing.T) {
	s, _ := service(t)
	at := "site.test:" + port(s)
	r := modelRig(t, s, "allow send*", "allow infer*", "allow use-secret*")
	var got ending
	r.seen = func(e ending) { got = e }
	res, _, _ := r.ask(t, post(at, "/v1/messages", "x-api-key: sk-stand-in\r\n", `{"model":"m","messages":[],"stream":true}`))
	_ = body(t, res)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got.Usage == nil || got.Usage.Input != 9 || got.Usage.Output != 3 || got.Usage.Estimated {
		raw, err := json.Marshal(got)
		t.Errorf("%s %v", raw, err)
	}
}

// TestAnswerThatNobodyReads: who goes away before the answer is there pays for it all the
// same: the service has made it.
func TestAnswerThatNobodyReads(t *testing.T) {
	asked, over := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-over
	}))
	t.Cleanup(s.Close)
	defer close(over)
	at := "site.test:" + port(s)
	r := modelRig(t, s, "allow send*", "allow infer*")
	ended := make(chan ending, 1)
	r.seen = func(e ending) { ended <- e }
	conn := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	if _, err := io.WriteString(conn, post(at, "/v1/messages", "", `{"model":"m","messages":[],"max_tokens":700}`)); err != nil {
		t.Fatal(err)
	}
	<-asked
	_ = conn.Close()
	if e := <-ended; e.Usage == nil || e.Usage.Output < 700 || !e.Usage.Estimated {
		t.Errorf("used %+v", e.Usage)
	}
}

// TestPackages: what a registry is asked is decided as installs, and its way there is not
// asked about by itself.
func TestPackages(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/left-pad" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"left-pad","versions":{"1.0.0":{},"1.1.0":{}},"dist-tags":{"latest":"1.1.0"}}`)
	}))
	t.Cleanup(s.Close)
	u, err := weburl.Parse("http://site.test:" + port(s) + "/")
	if err != nil {
		t.Fatal(err)
	}
	at := u.HostPort()
	r := newRig(t, func(o *Options) { o.Registries = []registry.Place{{Ecosystem: registry.NPM, URL: u}} }, "allow install npm:left-pad*")
	r.leaveOut = []string{"1"}
	res, _, _ := r.ask(t, "GET http://"+at+"/left-pad HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
	if got := body(t, res); res.StatusCode != 200 || strings.Contains(got, "1.1.0") || !strings.Contains(got, `"latest":"1.0.0"`) {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	res, _, _ = r.ask(t, "PUT http://"+at+"/left-pad HTTP/1.1\r\nHost: "+at+"\r\nContent-Length: 0\r\n\r\n")
	if got := body(t, res); res.StatusCode != 403 || !strings.Contains(got, "only reads") {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	res, _, _ = r.ask(t, "GET http://"+at+"/other HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
	if got := body(t, res); res.StatusCode != 403 || !slices.Contains(r.decider.asked, "install npm:other") {
		t.Errorf("%d %q %q", res.StatusCode, got, r.decider.asked)
	}
}

// TestFilesInside: a registry can say that its files are on an address inside, and nothing
// is asked there: no clause has named it.
func TestFilesInside(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("secret ", 4096)
	inside := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) })}}
	inside.Start()
	t.Cleanup(inside.Close)
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		_, _ = fmt.Fprintf(w, `{"name":"x","files":[{"filename":"x-1.0.tar.gz","url":"%s/x-1.0.tar.gz","hashes":{"sha256":"%064d"}}]}`, inside.URL, 0)
	}))
	t.Cleanup(index.Close)
	u, err := weburl.Parse("http://site.test:" + port(index) + "/simple/")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) {
		o.Network.Private = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		o.Registries = []registry.Place{{Ecosystem: registry.PyPI, URL: u}}
	}, "allow install pypi:x*", "allow fetch "+inside.URL+"/x-1.0.tar.gz") // implied, in the gate
	res, _, _ := r.ask(t, "GET "+u.String()+"x/ HTTP/1.1\r\nHost: "+u.HostPort()+"\r\n\r\n")
	if got := body(t, res); res.StatusCode != 200 {
		t.Fatalf("%d %q", res.StatusCode, got)
	}
	at := strings.TrimPrefix(inside.URL, "http://")
	res, _, _ = r.ask(t, "GET http://"+at+"/x-1.0.tar.gz HTTP/1.1\r\nHost: "+at+"\r\nConnection: close\r\n\r\n")
	if got := body(t, res); res.StatusCode == 200 || strings.Contains(got, "secret") {
		t.Errorf("%d %q", res.StatusCode, got)
	}
}

// TestModelOverBudget: that nothing is left of a budget is said as the service says it, and
// not as a key that is not accepted.
func TestModelOverBudget(t *testing.T) {
	s, heard := service(t)
	at := "site.test:" + port(s)
	r := modelRig(t, s, "allow use-secret*")
	r.denies = []string{"budget"}
	res, _, _ := r.ask(t, post(at, "/v1/messages", "x-api-key: sk-stand-in\r\n", `{"model":"m","messages":[]}`))
	if got := body(t, res); res.StatusCode != 402 || !strings.Contains(got, "billing_error") || len(*heard) > 0 {
		t.Errorf("%d %q, heard %q", res.StatusCode, got, *heard)
	}
}

// TestRefusedInside: what is no request, in a connection about which nothing is decided as
// all in it is, is on record.
func TestRefusedInside(t *testing.T) {
	models, err := provider.New([]provider.Provider{{Name: "ours", URL: "https://site.test"}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.Models, o.Intercept = models, opener{} })
	res, b, conn := r.ask(t, "CONNECT site.test:22 HTTP/1.1\r\nHost: site.test:22\r\n\r\n")
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	if _, err := io.WriteString(conn, "\x00\x00not for a model"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(b); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if err := r.stop(); err != nil || !slices.Contains(r.decider.asked, "connect site.test:22") {
		t.Errorf("%v %q", err, r.decider.asked)
	}
}
