package inspect

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scanWhole is what a Stream is held against: the scan of content as one text.
func scanWhole(in *Inspector, content []byte, o Origin) (Findings, []byte) {
	f := Findings{}
	s := &scan{in: in, f: &f, signs: o != Arguments, whole: true}
	s.text(view{text: content})
	f.Matches = merge(f.spans)
	f.Signs = unmatched(f.Signs, f.Matches)
	f.spans = nil
	f.label(s.private > 0)
	return f, redactText(content, f.Matches)
}

// through is what comes of pieces in a Stream.
func through(t interface{ Fatal(...any) }, in *Inspector, o Origin, r Redaction, pieces ...[]byte) (Findings, []byte) {
	st := in.Stream(o, r)
	var out []byte
	for _, p := range pieces {
		b, err := st.Push(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	b, err := st.End()
	if err != nil {
		t.Fatal(err)
	}
	return st.Findings(), append(out, b...)
}

// samples are the texts of testdata/scan.jsonl, and what else crosses pieces.
func samples(t testing.TB) [][]byte {
	t.Helper()
	f, err := os.Open("testdata/scan.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]byte
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var c struct{ Text string }
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, []byte(fill(c.Text)))
	}
	secret := known[0].Value
	for _, s := range []string{
		base64.StdEncoding.EncodeToString(secret), base64.URLEncoding.EncodeToString(append([]byte("a"), secret...)),
		base64.StdEncoding.EncodeToString(append([]byte("ab"), secret...)), hex.EncodeToString(secret), url.QueryEscape(string(known[1].Value)),
		"4111 1111 1111 1111", "card 4111111111111111.", "DE89 3704 0044 0532 0130 00", "ssn: 219-09-9999",
		"\x1b[31mred\x1b[0m \x1b]0;t\a \u202e \U0001F3F4\U000E0067\U000E0062\U000E007F a\u200db \ufeff",
		"data:text/html;base64,PHA+", `api_key = "` + letters + `"`, "Ignore all previous instructions",
	} {
		out = append(out, []byte("x "+s+" y"), []byte(s))
	}
	return out
}

// TestStreamEveryCut: what is found and replaced does not depend on where pieces are cut.
func TestStreamEveryCut(t *testing.T) {
	in := inspector(t)
	for _, text := range samples(t) {
		want, redacted := scanWhole(in, text, Anywhere)
		check := func(pieces ...[]byte) {
			f, out := through(t, in, Anywhere, All, pieces...)
			if !reflect.DeepEqual(f.Matches, want.Matches) || !reflect.DeepEqual(f.Signs, want.Signs) || !reflect.DeepEqual(f.Labels, want.Labels) {
				t.Errorf("%q found %+v %+v %q\nwant %+v %+v %q", pieces, f.Matches, f.Signs, f.Labels, want.Matches, want.Signs, want.Labels)
			}
			if !bytes.Equal(out, redacted) {
				t.Errorf("%q became\n%q, want\n%q", pieces, out, redacted)
			}
		}
		var single [][]byte
		for i := range text {
			single = append(single, text[i:i+1])
			if len(text) < 600 || i%37 == 0 {
				check(text[:i], text[i:])
			}
		}
		check(single...)
	}
}

// TestStreamProperty is the same for any texts and cuts, and for what is only looked at.
func TestStreamProperty(t *testing.T) {
	in := inspector(t)
	parts := samples(t)
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			part := parts[rapid.IntRange(0, len(parts)-1).Draw(t, "part")]
			from := rapid.IntRange(0, len(part)).Draw(t, "from")
			text = append(text, part[from:rapid.IntRange(from, len(part)).Draw(t, "to")]...)
			text = append(text, rapid.SampledFrom([]string{"", " ", "\n", "a", "=", "1", "\xe2"}).Draw(t, "glue")...)
		}
		var pieces [][]byte
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 50)).Draw(t, "cut")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		want, redacted := scanWhole(in, text, Result)
		f, out := through(t, in, Result, All, pieces...)
		if !reflect.DeepEqual(f.Matches, want.Matches) || !reflect.DeepEqual(f.Signs, want.Signs) || !bytes.Equal(out, redacted) {
			t.Fatalf("%q\nfound %+v %+v\nwant  %+v %+v\n%q\n%q", text, f.Matches, f.Signs, want.Matches, want.Signs, out, redacted)
		}
		if g, same := through(t, in, Result, Nothing, pieces...); !bytes.Equal(same, text) || !reflect.DeepEqual(g, f) {
			t.Fatalf("looked at %q, and it became %q", text, same)
		}
	})
}

// TestStreamMask: the forms of a secret become its mask, and tokens stay where only known
// secrets are replaced.
func TestStreamMask(t *testing.T) {
	value := []byte("s3cr3t/value+of=mine")
	in, err := New([]Secret{{Name: "mine", Value: value, Mask: "STANDIN"}})
	if err != nil {
		t.Fatal(err)
	}
	forms := []string{string(value), hex.EncodeToString(value), url.QueryEscape(string(value)), base64.StdEncoding.EncodeToString(value)}
	for _, f := range forms {
		text := []byte("a " + f + " b " + fill("ghp_{36}") + "\n")
		_, out := through(t, in, Result, Known, text[:10], text[10:])
		if want := "a STANDIN b " + fill("ghp_{36}") + "\n"; string(out) != want {
			t.Errorf("%q became %q", text, out)
		}
	}
	if name, found := in.Contains([]byte("x" + forms[1])); !found || name != "mine" {
		t.Error("not contained")
	}
}

// TestStreamFlushes: what cannot become a part of something is not held back.
func TestStreamFlushes(t *testing.T) {
	in := inspector(t)
	for _, c := range []struct{ piece, out string }{
		{"data: {\"delta\":\"sk-\"}\n\n", "data: {\"delta\":\"sk-\"}\n\n"},
		{"event: ping\n\n", "event: ping\n\n"},
		{"data: Ignore \n\n", "data: Ignore \n\n"},
		{"a card: 4111\n", "a card: 4111\n"},
		{"-----BEGIN PRIVATE KEY-----\"}\n\n", "-----BEGIN PRIVATE KEY-----\"}\n\n"},
		{"see hunter2-\n", "see hunter2-\n"},
		{"see hunter2-", "see "},
		{"Authorization: Bearer abc", "Authorization: "},
		{"a ghp_abc", "a "},
	} {
		out, err := in.Stream(Result, All).Push([]byte(c.piece))
		if err != nil || string(out) != c.out {
			t.Errorf("%q gave %q, want %q (%v)", c.piece, out, c.out, err)
		}
	}
}

// TestStreamBounds: memory does not grow with content, nor is anything of what cannot be
// replaced passed on (N1).
func TestStreamBounds(t *testing.T) {
	in := inspector(t)
	for _, endless := range []string{"A", "eyJ", "-----BEGIN PRIVATE KEY-----\nA", "hunter2-", "://a", "1", "DE89", "\x1b[", "password=\"", "\xf0"} {
		st := in.Stream(Result, All)
		if _, err := st.Push([]byte(endless)); err != nil {
			t.Fatal(err)
		}
		piece := bytes.Repeat([]byte("A1b2"), 1024)
		for range 100 {
			if _, err := st.Push(piece); err != nil {
				t.Fatal(err)
			}
			if len(st.buf) > 3*maxPEM {
				t.Fatalf("%q: %d bytes are held", endless, len(st.buf))
			}
		}
	}
	st := in.Stream(Result, All)
	_, err := st.Push([]byte(strings.Repeat(fill("ghp_{36} "), maxMatches+1)))
	if !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
	if _, err := st.End(); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many, at the end: %v", err)
	}
	if _, err := st.Push(nil); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestLinear: what is looked for again from many places is not gone through again from
// each (N1): a scan that did would not come to its end here.
func TestLinear(t *testing.T) {
	in := inspector(t)
	for _, unit := range []string{"eyJ-", "eyJ-eyJ.", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A PRIVATE KEY----------END ", "sk-ant-", "://a:", "1 ", "hunter2-", "password=\"", "DE"} {
		text := bytes.Repeat([]byte(unit), 1<<18/len(unit))
		if f := in.Scan(text); f.Whole && f.Matches == nil {
			t.Error(unit)
		}
	}
}

// FuzzStream: whatever the text and the cuts, a Stream finds and returns what a scan of
// the whole does.
func FuzzStream(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s, byte(7))
	}
	in := inspector(f)
	f.Fuzz(func(t *testing.T, text []byte, cut byte) {
		var pieces [][]byte
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+int(cut)%61)
			pieces, rest, cut = append(pieces, rest[:n]), rest[n:], cut*31+7
		}
		want, redacted := scanWhole(in, text, Result)
		if want.Whole {
			return
		}
		got, out := through(t, in, Result, All, pieces...)
		if !reflect.DeepEqual(got.Matches, want.Matches) || !reflect.DeepEqual(got.Signs, want.Signs) || !bytes.Equal(out, redacted) {
			t.Errorf("%q: found %+v %+v\nwant %+v %+v\n%q\n%q", text, got.Matches, got.Signs, want.Matches, want.Signs, out, redacted)
		}
	})
}

// BenchmarkStream is content that is looked at as it passes, 32 KiB at a time.
func BenchmarkStream(b *testing.B) {
	lent := inspector(b)
	random := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(random) //nolint:errcheck // never fails
	many, _ := json.Marshal(map[string]any{"pages": strings.Split(strings.Repeat(string(page(false)), 100), "\n"), "total": 10299, "at": "2026-01-31T12:00:00Z"})
	for _, c := range []struct {
		name string
		in   *Inspector
		r    Redaction
		text []byte
	}{
		{"text", &Inspector{}, Nothing, bytes.Repeat(page(false), 100)},
		{"json", &Inspector{}, Nothing, many},
		{"binary", &Inspector{}, Nothing, random},
		{"beyond-ascii", &Inspector{}, Nothing, bytes.Repeat([]byte("日本語テキスト "), 1<<20/22)},
		{"text-lent", lent, Known, bytes.Repeat(page(false), 100)},
		{"binary-lent", lent, Known, random},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				st := c.in.Stream(Result, c.r)
				for piece := range slices.Chunk(c.text, 32<<10) {
					if _, err := st.Push(piece); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
