package listen

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestNothingCrosses: of any number of clients of both eras, that use the same ids and
// progress tokens at the same time, each gets its own answers and its own progress.
func TestNothingCrosses(t *testing.T) {
	s := newStage(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		clients := rapid.SliceOfN(rapid.SampledFrom([]string{"session", "alone"}), 2, 6).Draw(t, "clients")
		rounds := rapid.IntRange(1, 3).Draw(t, "rounds")
		wrong := make(chan string, len(clients)*rounds)
		var all sync.WaitGroup
		for i, kind := range clients {
			header, more := headers("tools/call", "echo"), alone+`,"progressToken":"same"}`
			if kind == "session" {
				header, more = map[string]string{headerSession: s.open()}, `"_meta":{"progressToken":"same"}`
			}
			all.Go(func() {
				for round := range rounds {
					text := fmt.Sprintf("%d/%d %s", i, round, strings.Repeat("x", 10*i+round))
					r := s.send("POST", callOf("1", "echo", text, ","+more), header)
					if err := own(r, text); err != nil {
						wrong <- fmt.Sprintf("%s %q: %v in %s", kind, text, err, r.body)
					}
				}
			})
		}
		all.Wait()
		close(wrong)
		for w := range wrong {
			t.Error(w)
		}
	})
}

// own checks that an answer, JSON or events, is to id 1 and says text, and that every
// progress is as much as text is long.
func own(r reply, text string) error {
	lines := []string{r.body}
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		lines = nil
		for in := bufio.NewScanner(strings.NewReader(r.body)); in.Scan(); {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && data != "" {
				lines = append(lines, data)
			}
		}
	}
	answers := 0
	for _, l := range lines {
		var m struct {
			ID     int
			Method string
			Params struct {
				ProgressToken string
				Progress      int
			}
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			return err
		}
		switch {
		case m.Method == "" && m.ID == 1 && len(m.Result.Content) == 1 && m.Result.Content[0].Text == text:
			answers++
		case m.Method == "notifications/progress" && m.Params.ProgressToken == "same" && m.Params.Progress == len(text):
		default:
			return fmt.Errorf("%s is not its own", l)
		}
	}
	if answers != 1 || r.status != http.StatusOK {
		return fmt.Errorf("%d answers, status %d", answers, r.status)
	}
	return nil
}

// FuzzRouter: whatever a client sends, with whatever headers, gets one answer of HTTP;
// what is answered with JSON is JSON, what is streamed is events of JSON, and what its
// headers do not say is not carried out.
func FuzzRouter(f *testing.F) {
	s := newStage(f, nil)
	session := s.open()
	for _, c := range [][5]string{
		{"2026-07-28", "tools/call", "echo", "", callOf("1", "echo", "x", ","+alone+"}")},
		{"2025-11-25", "", "", "s", callOf("1", "echo", "x", "")},
		{"", "server/discover", "", "", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`},
		{"2099-01-01", "tools/list", "", "", `{"jsonrpc":"2.0","id":"\u0031","method":"tools/list","params":{` + alone + `}}}`},
		{"", "", "", "s", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`},
		{"", "", "=?base64?ZWNobw==?=", "s", `{"jsonrpc":"2.0","id":"ringfence-1","result":{}}`},
	} {
		f.Add(c[0], c[1], c[2], c[3] != "", []byte(c[4]))
	}
	f.Fuzz(func(t *testing.T, version, method, name string, inSession bool, body []byte) {
		if strings.Contains(string(body), "wait") || strings.Contains(string(body), "late") || strings.Contains(string(body), "listen") {
			return // they do not end by themselves
		}
		header := http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Authorization": {"Bearer " + secret}}
		for k, v := range map[string]string{headerVersion: version, headerMethod: method, headerName: name} {
			if v != "" {
				header.Set(k, v)
			}
		}
		if inSession {
			header.Set(headerSession, session)
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		w := &recorder{reply: reply{header: http.Header{}}}
		s.h.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 202, 400, 404, 429}, w.status) {
			t.Fatalf("status %d", w.status)
		}
		if strings.HasPrefix(w.header.Get("Content-Type"), "application/json") && !json.Valid([]byte(w.body)) {
			t.Fatalf("no JSON: %q", w.body)
		}
		if strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream") {
			for in := bufio.NewScanner(strings.NewReader(w.body)); in.Scan(); {
				if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && data != "" && !json.Valid([]byte(data)) {
					t.Fatalf("an event that is no JSON: %q", data)
				}
			}
		}
		if version == "2026-07-28" && w.status == 200 && strings.Contains(w.body, `"result"`) {
			var m struct{ Method string }
			if json.Unmarshal(body, &m) != nil || m.Method != strings.Trim(method, " \t") {
				t.Fatalf("%q was carried out as %q", m.Method, method)
			}
		}
	})
}

// FuzzEvents: whatever lines go in, the reader of the events gets each as one message.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte("{\"a\":\r\n\r\ndata: 1}"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, each := range [][]byte{a, b} {
			if !json.Valid(each) || strings.Contains(string(each), "\n") {
				return // lines are JSON without a newline
			}
		}
		h := &Handler{}
		w := &recorder{reply: reply{header: http.Header{}}}
		s := newStream(&session{polls: true}, 3)
		out := &events{h: h, w: w, s: s}
		for i, each := range [][]byte{a, b} {
			if err := out.event(i+1, flat(append(bytes.Clone(each), '\n'))); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		var data []string
		text := strings.ReplaceAll(strings.ReplaceAll(w.body, "\r\n", "\n"), "\r", "\n") // as a reader of events does
		for line := range strings.SplitSeq(text, "\n") {
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = append(data, v)
			}
			if line == "" && data != nil {
				got, data = append(got, strings.Join(data, "\n")), nil
			}
		}
		want := []string{"", string(flat(a)), string(flat(b))}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// FuzzHeader: a value that was encoded is decoded to what it was, and what is decoded
// from plain text is that text.
func FuzzHeader(f *testing.F) {
	f.Add("us-west1")
	f.Add("=?base64?ZWNobw==?=")
	f.Add("=?base64?ZWN=?=")
	f.Fuzz(func(t *testing.T, value string) {
		got, ok := decoded(value)
		if encoded := strings.HasPrefix(value, "=?base64?") && strings.HasSuffix(value, "?=") && len(value) >= 11; ok && !encoded && got != value {
			t.Fatalf("%q was decoded to %q", value, got)
		}
		if again, fine := decoded("=?base64?" + encode(value) + "?="); !fine || again != value {
			t.Fatalf("%q came back as %q", value, again)
		}
	})
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
