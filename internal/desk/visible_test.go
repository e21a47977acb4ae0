package desk

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestVisible(t *testing.T) {
	f, err := os.Open("testdata/visible.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var c struct{ Name, In, Out string }
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if got := Visible(c.In, 1000); got != c.Out {
			t.Errorf("%s: %q, want %q", c.Name, got, c.Out)
		}
	}
	if got := Visible("\xff\x80", 100); got != `\x{ff}\x{80}` {
		t.Errorf("invalid UTF-8: %q", got)
	}
	long := strings.Repeat("a", 1000) + "/etc/passwd"
	if got := Visible(long, 100); !strings.HasSuffix(got, "/etc/passwd") || !strings.Contains(got, "…[911 bytes left out]…") {
		t.Errorf("truncation hides the end or miscounts: %q", got)
	}
}

var escapes = regexp.MustCompile(`\\[ux]\{([0-9a-f]+)\}|[\x{2400}-\x{2421}]`)

// unvisible reads what Visible wrote. That it can is why no two texts look
// alike.
func unvisible(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(e string) string {
		m := escapes.FindStringSubmatch(e)
		n, _ := strconv.ParseUint(m[1], 16, 32)
		r, _ := utf8.DecodeRuneInString(e)
		switch {
		case m[1] != "" && e[1] == 'x':
			return string([]byte{byte(n)})
		case m[1] != "":
			return string(rune(n))
		case r == '␡':
			return "\x7f"
		}
		return string(r - 0x2400)
	})
}

func TestVisibleIsOneLineAndReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`(\\|u|x|\{|[0-9a-f]|\}|␛|\n){0,20}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		v := Visible(s, 1<<20)
		if got := unvisible(v); got != s {
			t.Fatalf("%q shows as %q, which reads %q", s, v, got)
		}
		for _, r := range v {
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Fatalf("%q shows %U", s, r)
			}
		}
		if n := rapid.IntRange(0, 200).Draw(t, "max"); len(Visible(s, n)) > max(n, 32)+40 {
			t.Fatalf("%q shown in %d bytes for %d", s, len(Visible(s, n)), n)
		}
	})
}

// TestRender is AP-01: what an agent wrote stands on marked lines, and nothing in
// it is obeyed.
func TestRender(t *testing.T) {
	raw, err := os.ReadFile("testdata/question.json")
	if err != nil {
		t.Fatal(err)
	}
	var q Question
	if err := json.Unmarshal(raw, &q); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/question.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := Render(q); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out, err := JSON(q)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range string(out) {
		if !plain(r) {
			t.Errorf("JSON holds %U", r)
		}
	}
	var back Question
	if err := json.Unmarshal(out, &back); err != nil || back.Args != q.Args || back.Effects[1].Resource.Text != q.Effects[1].Resource.Text {
		t.Errorf("JSON reads back as %+v, %v", back, err)
	}
}

// TestRenderQuotes: however long and whatever it holds, the agent's text begins
// no line.
func TestRenderQuotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.String().Draw(t, "args")
		text := Render(Question{Args: args, Clauses: []Clause{{ID: "c1"}}})
		_, quoted, found := strings.Cut(text, "none of them is ours:\n")
		if found != (args != "") {
			t.Fatalf("quoted %v for %q", found, args)
		}
		lines := strings.Split(strings.TrimSuffix(quoted, "\n"), "\n")
		var got strings.Builder
		for _, l := range lines[:max(len(lines)-1, 0)] {
			rest, ok := strings.CutPrefix(l, quoteMark)
			if !ok {
				t.Fatalf("line %q of %q is not marked", l, args)
			}
			got.WriteString(rest)
		}
		if unvisible(got.String()) != args {
			t.Fatalf("%q is quoted as %q", args, got.String())
		}
	})
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b]0;x\x07", 40)
	f.Fuzz(func(t *testing.T, s string, max int) {
		for _, r := range Visible(s, min(max, 1<<16)) {
			if !plain(r) && !(r >= 0x2400 && r <= 0x2421) {
				t.Errorf("%q shows %U", s, r)
			}
		}
	})
}
