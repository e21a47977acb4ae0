package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/egress/provider"
)

// chunks are what the other provider answers with, in its own form.
const chunks = `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"lo"}}]}

data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}

`

// profileRig is a way out where the provider "other" answers what "ours" is asked.
func profileRig(t *testing.T, answer func(w http.ResponseWriter, r *http.Request), rules ...string) (r *rig, at string, heard *[]string) {
	t.Helper()
	heard = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*heard = append(*heard, fmt.Sprintf("%s %s %s%s %s", r.Method, r.RequestURI, r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"), b))
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	models, err := provider.New([]provider.Provider{
		{Name: "ours", URL: "http://asked.test:" + port(s), Keys: []string{"x-api-key"}, Endpoints: []provider.Endpoint{
			{Method: "POST", Path: "/v1/messages", Wire: provider.Messages}, {Method: "GET", Path: "/v1/models"},
		}},
		{Name: "other", URL: "http://site.test:" + port(s) + "/v1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := provider.Profile{Name: "p", From: "ours", To: "other", Models: map[string]string{"claude-*": "gpt-x"}, Secret: "key"}
	if err := p.Check(models); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, func(o *Options) {
		o.Models, o.Profile = models, p
		o.Sentinels = []loan.Sentinel{{Name: "key", Text: "sk-stand-in", Bindings: []loan.Binding{{
			Plain: true, Host: "site.test", Port: uint16Of(t, port(s)), Position: loan.Position{Header: "authorization", Form: "Bearer {}"},
		}}}}
	}, rules...)
	r.lend = []act.Loan{{Name: "key", Sentinel: "sk-stand-in", Value: "sk-real-key"}}
	return r, "asked.test:" + port(s), heard
}

// TestProfile: a request to one provider is decided as one to the other, goes there with
// its key and in its form, and its answer comes back in the form of the first.
func TestProfile(t *testing.T) {
	const ask = `{"model":"claude-x","max_tokens":10,"system":"be short","messages":[{"role":"user","content":"hi"}]%s}`
	const asked = `POST /v1/chat/completions Bearer sk-real-key {"max_completion_tokens":10,"messages":[{"content":"be short","role":"system"},{"content":"hi","role":"user"}],"model":"gpt-x"%s}`
	const streamed = `,"stream":true,"stream_options":{"include_usage":true}`
	send := func(text string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		}
	}
	says := func(status int, text string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	for _, c := range []struct {
		name, head, ask string
		answer          func(w http.ResponseWriter, r *http.Request)
		status          int
		says, heard     string
	}{
		{"streamed", "x-api-key: " + provider.StandIn + "\r\n", fmt.Sprintf(ask, `,"stream":true`), send(chunks), 200, `"text":"lo"`, fmt.Sprintf(asked, streamed)},
		{"its end", "", fmt.Sprintf(ask, `,"stream":true`), send(chunks), 200, "event: message_stop\n", fmt.Sprintf(asked, streamed)},
		{
			"whole, with the key of the other", "x-api-key: sk-stand-in\r\n", fmt.Sprintf(ask, ""),
			says(200, `{"id":"c","choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}`),
			200, `{"content":[{"text":"hello","type":"text"}],"id":"c","model":"claude-x","role":"assistant","stop_reason":"end_turn"`, fmt.Sprintf(asked, ""),
		},
		{"an error", "", fmt.Sprintf(ask, ""), says(429, `{"error":{"message":"slow down","type":"x"}}`), 429, `{"error":{"message":"slow down","type":"rate_limit_error"},"type":"error"}`, fmt.Sprintf(asked, "")},
		{"an answer that is none", "", fmt.Sprintf(ask, ""), says(200, `{}`), 502, "translating", fmt.Sprintf(asked, "")},
		{"a key of its own", "x-api-key: sk-foreign\r\n", fmt.Sprintf(ask, ""), nil, 403, "a key of its own", ""},
		{"a key elsewhere", "x-other: sk-stand-in\r\n", fmt.Sprintf(ask, ""), nil, 403, "stands for the secret key", ""},
		{"a model that stands for none", "", `{"model":"m","messages":[]}`, nil, 400, "no model", ""},
		{"what cannot be translated", "", fmt.Sprintf(ask, `,"tools":[{"type":"bash_20250124","name":"bash"}]`), nil, 400, "Anthropic only", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, at, heard := profileRig(t, c.answer, "allow send http://site.test*", "allow infer other/gpt-x", "allow use-secret key")
			res, _, _ := r.ask(t, post(at, "/v1/messages", c.head, c.ask))
			if got := body(t, res); res.StatusCode != c.status || !strings.Contains(got, c.says) {
				t.Errorf("%d %s", res.StatusCode, got)
			}
			if got := strings.Join(*heard, "\n"); got != c.heard {
				t.Errorf("heard %s\nwant  %s", got, c.heard)
			}
		})
	}
}

// TestProfileIsDecided: the policy is asked about the model that answers, of which the
// record says what was used, and in whose place.
func TestProfileIsDecided(t *testing.T) {
	r, at, _ := profileRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, chunks)
	}, "allow send*", "allow infer*", "allow use-secret*")
	var got ending
	r.seen = func(e ending) { got = e }
	res, _, _ := r.ask(t, post(at, "/v1/messages", "", `{"model":"claude-x","messages":[],"stream":true}`))
	_ = body(t, res)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	_, where, _ := strings.Cut(at, ":")
	if want := "send http://site.test:" + where + "/v1/chat/completions, use-secret key, infer other/gpt-x"; !slices.Contains(r.decider.asked, want) {
		t.Errorf("asked %q", r.decider.asked)
	}
	if got.Usage == nil || got.Usage.Input != 9 || got.Usage.Output != 3 || got.Usage.Estimated {
		raw, err := json.Marshal(got)
		t.Errorf("%s %v", raw, err)
	}
	r, at, heard := profileRig(t, nil, "allow send*", "allow infer ours*", "allow use-secret*")
	res, _, _ = r.ask(t, post(at, "/v1/messages", "", `{"model":"claude-x","messages":[]}`))
	if text := body(t, res); res.StatusCode != 403 || !strings.Contains(text, `"type":"error"`) || len(*heard) > 0 {
		t.Errorf("the model that is asked for is allowed, the one that answers is not: %d %s", res.StatusCode, text)
	}
}

// TestProfileCut: a stream that stops before its end is not one that ended.
func TestProfileCut(t *testing.T) {
	r, at, _ := profileRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, chunks[:200])
	}, "allow send*", "allow infer*", "allow use-secret*")
	res, _, _ := r.ask(t, post(at, "/v1/messages", "", `{"model":"claude-x","messages":[],"stream":true}`))
	text, err := io.ReadAll(res.Body)
	if err == nil || strings.Contains(string(text), "message_stop") {
		t.Errorf("%v %s", err, text)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if ended := strings.Join(r.ended, "\n"); !strings.Contains(ended, "before its end") {
		t.Errorf("ended %q", ended)
	}
}
