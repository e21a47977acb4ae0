package fetch

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
)

const base = "https://example.com/dir/page"

func TestConvert(t *testing.T) {
	a, err := txtar.ParseFile("testdata/convert.txtar")
	if err != nil {
		t.Fatal(err)
	}
	page, name := "", ""
	for _, f := range a.Files {
		stem, kind, _ := strings.Cut(f.Name, ".")
		if kind == "html" {
			page, name = string(f.Data), stem
			continue
		}
		if stem != name {
			t.Fatalf("%s does not follow its page", f.Name)
		}
		// A no-break space is kept as it is; data files show it as a space.
		got := strings.ReplaceAll(convert(page, base, kind == "md", 10_000), "\u00a0", " ")
		want := strings.TrimRight(string(f.Data), "\n")
		if trimLines(got) != want {
			t.Errorf("%s:\n%s\nwant\n%s", f.Name, got, want)
		}
	}
}

// trimLines drops spaces at the ends of lines, which editors do not show.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// FE3: pages that are built to cost more than their size.
func TestConvertIsLinear(t *testing.T) {
	const n = 200_000
	for name, page := range map[string]string{
		"quotes":     strings.Repeat("<blockquote>x", n),
		"lists":      strings.Repeat("<ul><li>x", n),
		"links":      strings.Repeat("<a href=y>x", n),
		"marks":      strings.Repeat("<b>", n) + "x",
		"tables":     strings.Repeat("<table><tr><td>x", n),
		"attributes": "<p " + strings.Repeat("a=b ", n) + ">x",
		"open tag":   "<p " + strings.Repeat("x", n),
		"comment":    "<!--" + strings.Repeat("-", n),
		"pre":        strings.Repeat("<pre>\n\n\n", n),
		"hidden":     strings.Repeat("<div hidden>", n),
	} {
		start := time.Now()
		out := convert(page, base, true, maxLength)
		d := time.Since(start)
		t.Logf("%s: %v", name, d)
		if d > 10*time.Second {
			t.Errorf("%s takes %v", name, d)
		}
		if len(out) > 40*len(page) {
			t.Errorf("%s: %d bytes become %d", name, len(page), len(out))
		}
	}
}

func FuzzConvert(f *testing.F) {
	a, err := txtar.ParseFile("testdata/convert.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, x := range a.Files {
		f.Add(string(x.Data), true)
	}
	f.Fuzz(func(t *testing.T, page string, markdown bool) {
		out := convert(page, base, markdown, 1000)
		if utf8.ValidString(page) && !utf8.ValidString(out) {
			t.Errorf("%q is not UTF-8", out)
		}
		if strings.Contains(strings.ToLower(out), "](javascript:") && !strings.Contains(strings.ToLower(page), "](") {
			t.Errorf("%q leads to a script", out)
		}
	})
}
