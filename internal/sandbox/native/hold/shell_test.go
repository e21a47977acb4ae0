package hold

import (
	"os"
	"strings"
	"testing"
)

// shown is words in one line, as in testdata/shell.txt.
func shown(all []shWord) string {
	var parts []string
	for _, w := range all {
		text := strings.NewReplacer(" ", "_", string(unknown), "@").Replace(w.text)
		if w.assign != "" {
			text = w.assign + "=" + text
		}
		if w.first {
			text = "^" + text
		}
		if w.opaque {
			text = "~" + text
		}
		if len(w.inner) > 0 {
			text += "(" + shown(w.inner) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func TestShell(t *testing.T) {
	text, err := os.ReadFile("testdata/shell.txt")
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		command, want, ok := strings.Cut(before+line, " => ")
		switch {
		case strings.HasPrefix(line, "# "):
		case !ok:
			before += line + "\n"
		default:
			before = ""
			if got := shown(shell(command, 0)); got != want {
				t.Errorf("%s\n\tis   %s\n\twant %s", command, got, want)
			}
		}
	}
}

func FuzzShell(f *testing.F) {
	for _, s := range []string{"a 'b' \"c $d\"", "$(a `b` ${c} $((1)))", "x=y\\\n z #", "case a in b) c;; esac"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		var count func(all []shWord)
		count = func(all []shWord) {
			for _, w := range all {
				n += 1 + len(w.text)
				count(w.inner)
			}
		}
		if count(shell(s, 0)); n > 4*(maxNesting+1)*(len(s)+1) {
			t.Errorf("%q: %d", s, n)
		}
	})
}
