package linediff

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// patch applies a unified diff, trusting nothing but the numbers and the lines.
func patch(t *rapid.T, a, diff string) string {
	old := split(a)
	var out []string
	at := 0
	lines := strings.SplitAfter(diff, "\n")
	for i := 0; i < len(lines) && lines[i] != ""; i++ {
		l := lines[i]
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\ No newline`) {
			l = strings.TrimSuffix(l, "\n")
		}
		switch l[0] {
		case '@':
			var start int
			for _, c := range l[4:] {
				if c < '0' || c > '9' {
					break
				}
				start = start*10 + int(c-'0')
			}
			if !strings.Contains(l[:strings.Index(l, "+")], ",0 ") {
				start--
			}
			out = append(out, old[at:start]...)
			at = start
		case ' ', '-':
			if old[at] != l[1:] {
				t.Fatalf("diff says %q where the text has %q\n%s", l, old[at], diff)
			}
			if l[0] == ' ' {
				out = append(out, old[at])
			}
			at++
		case '+':
			out = append(out, l[1:])
		case '\\':
		default:
			t.Fatalf("line %q", l)
		}
	}
	return strings.Join(append(out, old[at:]...), "")
}

func TestDiffApplies(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "dd", ""}), 0, 40).Draw(t, "lines"), "\n")
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		d := Hunks(a, b, 4)
		if got := patch(t, a, d); got != b {
			t.Fatalf("from %q the diff gives %q, want %q\n%s", a, got, b, d)
		}
	})
}

// Beyond maxDiff the diff is no longer the shortest, and still right.
func TestDiffOfStrangers(t *testing.T) {
	a, b := strings.Repeat("a\n", maxDiff), strings.Repeat("b\n", maxDiff)
	d := Hunks("same\n"+a+"same\n", "same\n"+b+"same\n", 4)
	if n := strings.Count(d, "\n-"); n != maxDiff {
		t.Errorf("%d lines go", n)
	}
}
