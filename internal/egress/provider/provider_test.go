package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act/weburl"
)

func table(t testing.TB) *Table {
	t.Helper()
	tab, err := New([]Provider{{Name: "local", URL: "http://127.0.0.1:11434/v1"}})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// golden compares got with the file "want" of an archive, or writes it.
func golden(t *testing.T, path string, run func(files map[string]string, comment string) string) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files, at := map[string]string{}, -1
	for i, f := range a.Files {
		files[f.Name] = string(f.Data)
		if f.Name == "want" {
			at = i
		}
	}
	got := run(files, string(a.Comment))
	if got == files["want"] {
		return
	}
	if os.Getenv("RINGFENCE_TEST_UPDATE") == "" || at < 0 {
		t.Fatalf("got\n%swant\n%s", got, files["want"])
	}
	a.Files[at].Data = []byte(got)
	if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEndpoints: "METHOD URL" of each line, and what is asked there.
func TestEndpoints(t *testing.T) {
	golden(t, "testdata/endpoints.txtar", func(files map[string]string, _ string) string {
		var b strings.Builder
		for line := range strings.Lines(files["ask"]) {
			method, at, _ := strings.Cut(strings.TrimSpace(line), " ")
			u, err := weburl.Parse(at)
			if err != nil {
				fmt.Fprintf(&b, "%s %s: %v\n", method, at, err)
				continue
			}
			p, ok := table(t).Find(u)
			e, known := p.Endpoint(method, u)
			fmt.Fprintf(&b, "%s %s: provider %q %v, endpoint %v %q quiet %v counts %v\n", method, at, p.Name, ok, known, e.Wire, e.Quiet, e.Counts)
		}
		return b.String()
	})
}

// TestClean: each line of a file named after a wire is a request.
func TestClean(t *testing.T) {
	golden(t, "testdata/clean.txtar", func(files map[string]string, _ string) string {
		var b strings.Builder
		u, err := weburl.Parse("https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []Wire{Messages, Chat, Responses, Google} {
			for line := range strings.Lines(files[string(w)]) {
				line = strings.TrimSpace(line)
				c, err := Endpoint{Wire: w}.Clean(u, []byte(line))
				switch {
				case err != nil:
					fmt.Fprintf(&b, "%s\n  refused: %v\n", line, err)
				case string(c.Body) == line:
					fmt.Fprintf(&b, "%s\n  as it came; %s %v %v\n", line, c.Model, c.Streams, c.Left)
				default:
					fmt.Fprintf(&b, "%s\n  %s\n  %s %v %v hide %v\n", line, c.Body, c.Model, c.Streams, c.Left, c.HideLast)
				}
			}
		}
		return b.String()
	})
}

// TestMeter: each file is an answer; its name says the wire and how it is read.
func TestMeter(t *testing.T) {
	prices, err := NewPrices([]Price{{Model: "p/m", Input: 1_000_000, Output: 10_000_000, CacheRead: 100_000, CacheWrite: 2_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/meter.txtar", func(files map[string]string, order string) string {
		var b strings.Builder
		for name := range strings.Lines(order) {
			name = strings.TrimSpace(name)
			word := strings.Fields(name)
			o := MeterOptions{Wire: Wire(word[0]), Streams: word[1] != "whole", Hide: word[1] == "hide", Sent: 100, Most: 1000, Model: "p/m", Prices: prices, Budget: Unbounded}
			for _, w := range word[2:] {
				fmt.Sscanf(w, "tokens=%d", &o.Budget.Tokens) //nolint:errcheck // other words
				fmt.Sscanf(w, "usd=%d", &o.Budget.MicroUSD)  //nolint:errcheck // other words
			}
			var out bytes.Buffer
			m := NewMeter(&out, o)
			_, err := m.Write([]byte(files[name]))
			if !slices.Contains(word, "gone") {
				err = errors.Join(err, m.Close())
			}
			cost, _ := prices.Cost("p/m", m.Usage())
			fmt.Fprintf(&b, "%s: %+v costs %d\n", name, m.Usage(), cost)
			if err != nil {
				fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			if got := out.String(); got != files[name] {
				fmt.Fprintf(&b, "  passed on:\n%s", got)
			}
		}
		return b.String()
	})
}

// TestMeterInPieces: however an answer is cut, the same passes and the same is read.
func TestMeterInPieces(t *testing.T) {
	a, err := txtar.ParseFile("testdata/meter.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(a.Files).Draw(t, "file")
		word := strings.Fields(f.Name)
		if len(word) < 2 {
			return
		}
		o := MeterOptions{Wire: Wire(word[0]), Streams: word[1] != "whole", Hide: word[1] == "hide", Budget: Budget{rapid.Int64Range(-1, 60).Draw(t, "tokens"), -1}}
		var whole, pieces bytes.Buffer
		one, many := NewMeter(&whole, o), NewMeter(&pieces, o)
		_, err1 := one.Write(f.Data)
		err1 = errors.Join(err1, one.Close())
		var err2 error
		for rest := f.Data; len(rest) > 0 && err2 == nil; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			_, err2 = many.Write(rest[:n])
			rest = rest[n:]
		}
		err2 = errors.Join(err2, many.Close())
		if whole.String() != pieces.String() || one.Usage() != many.Usage() || errors.Is(err1, ErrBudget) != errors.Is(err2, ErrBudget) {
			t.Fatalf("whole: %v %+v\n%s\nin pieces: %v %+v\n%s", err1, one.Usage(), &whole, err2, many.Usage(), &pieces)
		}
	})
}

func TestNoPrice(t *testing.T) {
	p, err := NewPrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Cost("nobody/new", Usage{Input: 1}); ok {
		t.Error("a model without a price has one")
	}
	if got := (Budget{MicroUSD: 5_000_000, Tokens: -1}).Spent(p, "nobody/new", Usage{Input: 1}); got.MicroUSD != 0 {
		t.Errorf("it leaves %d of a budget of money", got.MicroUSD)
	}
	if _, err := NewPrices([]Price{{Model: "x", Input: -1}}); err == nil {
		t.Error("a price below zero is one")
	}
	if opus, _ := p.Cost("anthropic/claude-opus-4-5-20251101", Usage{Input: 1_000_000}); opus != 5_000_000 {
		t.Errorf("the longest text does not win: %d", opus)
	}
}

// FuzzClean: what passes names a model, is JSON, and comes out of a second cleaning as it is.
func FuzzClean(f *testing.F) {
	f.Add(0, []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x"}}]}],"tools":[{"type":"web_search_20250305"}]}`))
	f.Add(1, []byte(`{"model":"m","messages":[],"stream":true,"web_search_options":{}}`))
	f.Add(2, []byte(`{"model":"m","input":"x","tools":[{"type":"mcp","server_url":"http://x"}],"store":true}`))
	f.Add(3, []byte(`{"contents":[],"tools":[{"googleSearch":{}},{"functionDeclarations":[]}]}`))
	u, err := weburl.Parse("https://g.test/v1beta/models/g:generateContent")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, wire int, body []byte) {
		wires := []Wire{Messages, Chat, Responses, Google}
		e := Endpoint{Wire: wires[uint(wire)%4]}
		c, err := e.Clean(u, body)
		if err != nil {
			return
		}
		if c.Model == "" || !json.Valid(c.Body) {
			t.Fatalf("model %q of %s", c.Model, c.Body)
		}
		for _, server := range []string{`"web_search_2`, `"googleSearch"`, `"code_interpreter"`, `"mcp_servers"`} {
			var tools struct {
				Tools json.RawMessage `json:"tools"`
			}
			if json.Unmarshal(c.Body, &tools) == nil && bytes.Contains(tools.Tools, []byte(`"type":`+server)) {
				t.Fatalf("a tool that the service runs is left: %s", c.Body)
			}
		}
		again, err := e.Clean(u, c.Body)
		if err != nil || !bytes.Equal(again.Body, c.Body) {
			t.Fatalf("cleaned twice: %v\n%s\n%s", err, c.Body, again.Body)
		}
	})
}

// FuzzMeter: no answer makes it panic, and it passes nothing that did not come, but its end.
func FuzzMeter(f *testing.F) {
	f.Add(0, true, []byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5}}}\n\n"))
	f.Add(3, false, []byte(`[{"usageMetadata":{"promptTokenCount":1}}]`))
	f.Fuzz(func(t *testing.T, wire int, streams bool, body []byte) {
		wires := []Wire{Messages, Chat, Responses, Google}
		var out bytes.Buffer
		m := NewMeter(&out, MeterOptions{Wire: wires[uint(wire)%4], Streams: streams, Budget: Unbounded})
		if _, err := m.Write(body); err != nil {
			return
		}
		if err := m.Close(); err != nil {
			return
		}
		if !bytes.Equal(out.Bytes(), body) {
			t.Fatalf("%q became %q", body, out.Bytes())
		}
		if u := m.Usage(); u.Tokens() < 0 {
			t.Fatalf("%+v", u)
		}
	})
}
