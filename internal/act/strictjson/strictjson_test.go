package strictjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

var reasons = map[string]error{
	"syntax": ErrSyntax, "truncated": ErrTruncated, "trailing": ErrTrailing, "utf8": ErrUTF8,
	"surrogate": ErrSurrogate, "nul": ErrNUL, "bom": ErrBOM, "duplicate": ErrDuplicate,
	"depth": ErrDepth, "size": ErrSize, "number": ErrNumber, "unknown": ErrUnknown, "type": ErrType,
}

// rows reads a table: a Go literal, then words. Empty lines and # are skipped.
func rows(t testing.TB, name string, visit func(line int, texts []string, words []string)) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		rest := strings.TrimSpace(s.Text())
		if rest == "" || rest[0] == '#' {
			continue
		}
		var texts []string
		for rest != "" && (rest[0] == '"' || rest[0] == '`') {
			q, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("%s:%d: %v", name, n, err)
			}
			text, err := strconv.Unquote(q)
			if err != nil {
				t.Fatalf("%s:%d: %v", name, n, err)
			}
			texts = append(texts, text)
			rest = strings.TrimSpace(rest[len(q):])
		}
		visit(n, texts, strings.Fields(rest))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	rows(t, "testdata/check.txt", func(line int, texts, words []string) {
		err := Check([]byte(texts[0]))
		if words[0] == "ok" {
			if err != nil {
				t.Errorf("line %d: Check(%q) = %v", line, texts[0], err)
			}
			return
		}
		var e *Error
		if !errors.Is(err, reasons[words[0]]) || !errors.As(err, &e) || strconv.Itoa(e.Offset) != words[1] {
			t.Errorf("line %d: Check(%q) = %v, want %s at %s", line, texts[0], err, words[0], words[1])
		}
	})
}

func TestBounds(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat(`[`, n) + strings.Repeat(`]`, n)) }
	for _, c := range []struct {
		src  []byte
		l    Limits
		want error
	}{
		{nest(MaxDepth), Limits{}, nil},
		{nest(MaxDepth + 1), Limits{}, ErrDepth},
		{nest(100), Limits{Depth: 100}, nil},
		{bytes.Repeat([]byte("["), 1<<20), Limits{}, ErrDepth},
		{bytes.Repeat([]byte(`{"a":`), 1<<20), Limits{}, ErrDepth},
		{bytes.Repeat([]byte(" "), MaxSize+1), Limits{}, ErrSize},
		{bytes.Repeat([]byte("9"), 400), Limits{}, ErrNumber},
		{[]byte(`"12345"`), Limits{Size: 6}, ErrSize},
		{[]byte(`"12345"`), Limits{Size: 7}, nil},
	} {
		if err := CheckLimits(c.src, c.l); !errors.Is(err, c.want) {
			t.Errorf("CheckLimits(%.20q, %v) = %v, want %v", c.src, c.l, err, c.want)
		}
		if c.l == (Limits{}) && IsCanonical(c.src) != (c.want == nil) {
			t.Errorf("IsCanonical(%.20q) = %v", c.src, c.want != nil)
		}
	}
}

func TestDecode(t *testing.T) {
	got, err := Decode([]byte(`{"a":[1.50,-0,1e300,12345678901234567890],"b":{"c":"\u00e9\n","":null},"d":[],"e":{},"f":[true,false]}`))
	want := map[string]any{
		"a": []any{Number("1.50"), Number("-0"), Number("1e300"), Number("12345678901234567890")},
		"b": map[string]any{"c": "é\n", "": nil},
		"d": []any{}, "e": map[string]any{}, "f": []any{true, false},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Decode = %#v, %v", got, err)
	}
}

func TestUnmarshal(t *testing.T) {
	type inner struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	type outer struct {
		Servers map[string]inner `json:"servers"`
		Limit   Number           `json:"limit"`
		Raw     json.RawMessage  `json:"raw"`
		Count   int              `json:"count"`
	}
	rows(t, "testdata/unmarshal.txt", func(line int, texts, words []string) {
		var v outer
		err := Unmarshal([]byte(texts[0]), &v)
		got := "ok"
		if err != nil {
			got = err.Error()
		}
		if got != texts[1] {
			t.Errorf("line %d: Unmarshal(%s) = %q, want %q", line, texts[0], got, texts[1])
		}
		if err != nil && !errors.Is(err, reasons[words[0]]) {
			t.Errorf("line %d: %v does not wrap %q", line, err, words[0])
		}
	})
	var v outer
	if err := Unmarshal([]byte(`{"limit": 1.50, "raw": [1, 2]}`), &v); err != nil || v.Limit != "1.50" || string(v.Raw) != "[1, 2]" {
		t.Errorf("exact fields: %+v, %v", v, err)
	}
}

// Property: encoding/json accepts what Check accepts and reads the same values.
func FuzzCheck(f *testing.F) {
	rows(f, "testdata/check.txt", func(_ int, texts, _ []string) { f.Add([]byte(texts[0])) })
	rows(f, "testdata/canonical.txt", func(_ int, texts, _ []string) { f.Add([]byte(texts[0])) })
	f.Fuzz(func(t *testing.T, src []byte) {
		ours, err := Decode(src)
		if (err == nil) != (Check(src) == nil) {
			t.Fatalf("Decode(%q): %v", src, err)
		}
		if _, merr := Envelope(src, Limits{}); merr == nil && !json.Valid(src) || err == nil && (merr == nil) != (bytes.TrimSpace(src)[0] == '{') && !errors.Is(merr, ErrSize) {
			t.Fatalf("Envelope(%q): %v", src, merr)
		}
		if IsCanonical(src) && err != nil {
			t.Fatalf("IsCanonical(%q), but %v", src, err)
		}
		if err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(src))
		d.UseNumber()
		var theirs any
		if err := d.Decode(&theirs); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", src, err)
		}
		if !reflect.DeepEqual(ours, numbers(theirs)) {
			t.Fatalf("%q: %#v and %#v", src, ours, theirs)
		}
		once, err := Canonical(src)
		if IsCanonical(src) != (err == nil && bytes.Equal(once, src)) {
			t.Fatalf("IsCanonical(%q), Canonical %q, %v", src, once, err)
		}
		if err != nil {
			return
		}
		if twice, err := Canonical(once); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("Canonical(%q) = %q, %v", once, twice, err)
		}
	})
}

// numbers replaces json.Number by Number throughout.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return Number(v)
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}

func TestMembers(t *testing.T) {
	rows(t, "testdata/members.txt", func(line int, texts, words []string) {
		for i, read := range []func([]byte, Limits) ([]Member, error){Members, Envelope} {
			ms, err := read([]byte(texts[0]), Limits{Depth: 3})
			got := ""
			for _, m := range ms {
				got += m.Name + "=" + texts[0][m.Start:m.End] + " "
			}
			want := words[i]
			if reason := reasons[want]; reason != nil && !errors.Is(err, reason) || reason == nil && (err != nil || got != texts[1]) {
				t.Errorf("line %d: %s: %q, %v; want %s", line, texts[0], got, err, want)
			}
		}
	})
	var wide bytes.Buffer
	for i := range 65 {
		fmt.Fprintf(&wide, ",\"%d\":0", i)
	}
	src := append(append([]byte("{"), wide.Bytes()[1:]...), '}')
	if _, err := Envelope(src, Limits{}); !errors.Is(err, ErrSize) {
		t.Errorf("65 members: %v", err)
	}
	if ms, err := Members(src, Limits{}); len(ms) != 65 || err != nil {
		t.Errorf("65 members: %v", err)
	}
}
