package inspect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// known are the secrets that the cases of testdata/scan.jsonl know.
var known = []Secret{
	{Name: "deploy", Value: []byte("hunter2-hunter2")},
	{Name: "odd", Value: []byte("p@ss w/ord!")},
	{Name: "number", Value: []byte("8675309001")},
	{Name: "across", Value: []byte(`abc","de`)},
	{Name: "commas", Value: []byte("],[],[],")},
	{Name: "n-word", Value: []byte("nineteen-eighty")},
}

// letters stands for random text: {n} in a case becomes n of it, {Un} its upper
// case and digits, so that no file holds what looks like a credential.
const letters = "a1B2c3D4e5F6g7H8i9J0kLmNoPqRsTuVwXyZ"

var holes = regexp.MustCompile(`\{(U?)([0-9]+)\}`)

func fill(text string) string {
	return holes.ReplaceAllStringFunc(text, func(h string) string {
		m := holes.FindStringSubmatch(h)
		n, _ := strconv.Atoi(m[2])
		s := strings.Repeat(letters, n/len(letters)+1)[:n]
		if m[1] == "U" {
			s = strings.ToUpper(s)
		}
		return s
	})
}

func inspector(t testing.TB) *Inspector {
	t.Helper()
	in, err := New(known)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestScan(t *testing.T) {
	in := inspector(t)
	f, err := os.Open("testdata/scan.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var c struct {
			Name, Text, Redacted string
			Found, Signs         []string
		}
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		text := []byte(fill(c.Text))
		got := in.Scan(text)
		var found, signs []string
		for _, m := range got.Matches {
			found = append(found, m.Name)
		}
		for _, m := range got.Signs {
			if !slices.Contains(signs, string(m.Kind)) {
				signs = append(signs, string(m.Kind))
			}
		}
		if !slices.Equal(found, c.Found) || !slices.Equal(signs, c.Signs) {
			t.Errorf("%s: found %q and signs %q, want %q and %q", c.Name, found, signs, c.Found, c.Signs)
		}
		if slices.Contains(got.Labels, act.LabelSecret) != (len(c.Found) > 0) || slices.Contains(got.Labels, act.LabelUntrusted) != (len(c.Signs) > 0) {
			t.Errorf("%s: labels %q", c.Name, got.Labels)
		}
		out := in.Redact(text, got)
		if c.Redacted != "" && string(out) != c.Redacted {
			t.Errorf("%s: redacted\n %s, want\n %s", c.Name, out, c.Redacted)
		}
		if len(c.Found) == 0 && !bytes.Equal(out, text) {
			t.Errorf("%s: redacted without a finding: %s", c.Name, out)
		}
		if json.Valid(text) && !json.Valid(out) {
			t.Errorf("%s: no longer JSON: %s", c.Name, out)
		}
		if own := in.ScanFrom(text, Arguments); len(own.Signs) > 0 {
			t.Errorf("%s: signs in the agent's own words: %v", c.Name, own.Signs)
		}
	}
}

// TestBounds: findings do not grow with content (N1), and no secret is left
// when there are too many to replace (N2).
func TestBounds(t *testing.T) {
	in := inspector(t)
	for _, text := range [][]byte{
		bytes.Repeat([]byte("hunter2-hunter2 \u202e"), 10_000),
		[]byte("[" + strings.Repeat(`"hunter2-hunter2",`, 10_000) + "1]"),
	} {
		f := in.Scan(text)
		if !f.Whole || len(f.Matches) > maxMatches || len(f.Signs) > maxSigns {
			t.Errorf("whole %v, %d matches, %d signs", f.Whole, len(f.Matches), len(f.Signs))
		}
		if out := in.Redact(text, f); !strings.Contains(string(out), withheld) || len(out) > 30 {
			t.Errorf("redacted to %.60s", out)
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		why     string
		secrets []Secret
	}{
		{"too short", []Secret{{Name: "a", Value: []byte("1234567")}}},
		{"too long", []Secret{{Name: "a", Value: make([]byte, maxSecret+1)}}},
		{"bad name", []Secret{{Name: "A b", Value: []byte("12345678")}}},
		{"our own text", []Secret{{Name: "a", Value: []byte("redacted")}}},
		{"too many", make([]Secret, maxSecrets+1)},
	} {
		_, err := New(c.secrets)
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%s: %v, want ErrSecret", c.why, err)
		}
		for _, s := range c.secrets {
			if len(s.Value) == 7 && strings.Contains(fmt.Sprint(err), string(s.Value)) {
				t.Errorf("%s: the error tells the value: %v", c.why, err)
			}
		}
	}
}

// FuzzRedact: whatever the content and the secret, nothing panics, no form of
// the secret is left, and JSON stays JSON.
func FuzzRedact(f *testing.F) {
	f.Add([]byte("hunter2-hunter2"), []byte(`{"a":"hunter2-hunter2"}`))
	f.Add([]byte(`a","b":"c`), []byte(`{"a","b":"c":1}`))
	f.Add([]byte("[redact]"), []byte("x[redact]x"))
	f.Add([]byte("]nothing"), []byte("hunter2-hunter2nothing"))
	f.Add([]byte("néeeeee\n"), []byte(`["n\u00e9eeeee\n","ghp_"]`))
	f.Fuzz(func(t *testing.T, value, content []byte) {
		in, err := New(append([]Secret{{Name: "fuzzed", Value: value}}, known...))
		if err != nil {
			return
		}
		for _, text := range [][]byte{content, quote(content), append(slices.Clone(content), value...)} {
			found := in.Scan(text)
			out := in.Redact(text, found)
			for _, f := range forms(value) {
				if bytes.Contains(out, []byte(f.text)) {
					t.Errorf("%q is left of %q in %q", f.text, text, out)
				}
			}
			if !json.Valid(text) {
				continue
			}
			if !json.Valid(out) {
				t.Errorf("%q is no longer JSON: %q", text, out)
			}
			for s := range stringsOf(t, out) {
				if strings.Contains(s, string(value)) {
					t.Errorf("%q is left of %q in %q", value, text, out)
				}
			}
		}
	})
}

func quote(b []byte) []byte {
	q, _ := json.Marshal(map[string]string{"k": string(b)})
	return q
}

// stringsOf yields every string of a JSON text, as another decoder reads it.
func stringsOf(t *testing.T, text []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		for {
			tok, err := d.Token()
			if err != nil {
				return
			}
			if s, ok := tok.(string); ok && !yield(s) {
				return
			}
		}
	}
}

func page(json bool) []byte {
	line := "The handler reads `config.json`, then calls https://example.org/api?x=1 (see RFC 7230); it may ignore errors, and returns 42 results.\n"
	text := strings.Repeat(line, 10<<10/len(line)+1)[:10<<10]
	if json {
		return quote([]byte(text))
	}
	return []byte(text)
}

func BenchmarkScan10K(b *testing.B) {
	in := inspector(b)
	for name, text := range map[string][]byte{
		"text": page(false), "json": page(true),
		"beyond-ascii": bytes.Repeat([]byte("日本語テキスト "), 10<<10/22),
		"hostile":      bytes.Repeat([]byte("sk-ant-sk-ant-eyJ"), 10<<10/17),
		"hostile-pem":  bytes.Repeat([]byte("-----BEGIN PRIVATE KEY-----\n"), 10<<10/28),
		"hostile-url":  bytes.Repeat([]byte("://a:"), 10<<10/5),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				in.Scan(text)
			}
		})
	}
}

// BenchmarkScan1M tells whether the time grows with the length alone.
func BenchmarkScan1M(b *testing.B) {
	in := inspector(b)
	text := bytes.Repeat(page(false), 100)
	hostile := bytes.Repeat([]byte("-----BEGIN PRIVATE KEY-----\n"), 1<<20/28)
	for name, text := range map[string][]byte{"text": text, "hostile-pem": hostile} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				in.Scan(text)
			}
		})
	}
}

// TestD14Scrub: only registered secrets are taken out, behind escapes too.
func TestD14Scrub(t *testing.T) {
	in, err := New([]Secret{{Name: "key", Value: []byte("hunter2-hunter2")}})
	if err != nil {
		t.Fatal(err)
	}
	const token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	for content, want := range map[string]string{
		`{"a":"` + token + `"}`:                      `{"a":"` + token + `"}`,
		`{"a":"\u0068unter2-hunter2 ` + token + `"}`: `{"a":"[redacted:key] ` + token + `"}`,
		`no hunter2-hunter2`:                         `no [redacted:key]`,
	} {
		if got := string(in.Scrub([]byte(content))); got != want {
			t.Errorf("%s becomes %s, want %s", content, got, want)
		}
	}
}
