package seatbelt

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act/places"
)

// updating has the profiles in testdata written anew, by "make golden".
func updating() bool { return os.Getenv("RINGFENCE_TEST_UPDATE") == "1" }

// TestProfiles goes through testdata/*.txtar. "rules" are what a profile is made of;
// "ask" is a table of operations that it allows or denies; "error", if there, is a part
// of why there is none; "lacks" are the names of what it does not say. The profile
// itself stands in the file of the same name that ends in ".sb"; what all have in
// common only in that of "full".
func TestProfiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range archive.Files {
				parts[f.Name] = string(f.Data)
			}
			p, err := Compose(parseRules(t, parts["rules"]))
			if want := strings.TrimSpace(parts["error"]); want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rules := rulesOf(t, p.Text)
			for line := range lines(parts["ask"]) {
				w := words(t, line)
				q := query{op: w[1], path: w[2]}
				if len(w) > 3 {
					q.what = w[3]
				}
				if got := allows(t, rules, q); got != (w[0] == "allow") {
					t.Errorf("%s: allowed %v", line, got)
				}
			}
			var lacks []string
			for l := range p.Lacks {
				lacks = append(lacks, l)
			}
			slices.Sort(lacks)
			if got, want := strings.Join(lacks, " "), strings.Join(strings.Fields(parts["lacks"]), " "); got != want {
				t.Errorf("lacks %q, want %q", got, want)
			}
			compare(t, strings.TrimSuffix(name, ".txtar")+".sb", abridged(p.Text, strings.Contains(name, "/full.")))
		})
	}
}

// abridged leaves out of a profile what stands in full.sb.
func abridged(text string, full bool) string {
	if full {
		return text
	}
	_, text, _ = strings.Cut(text, "\n; what the box is given\n")
	if before, rest, ok := strings.Cut(text, "\n; what the host runs later\n"); ok {
		_, after, _ := strings.Cut(rest, "\n; ")
		text = before + "\n; what the host runs later: as in full.sb\n\n; " + after
	}
	return text
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	if updating() {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; the profile is\n%s", name, got)
	}
}

func lines(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
			if line := strings.TrimSpace(sc.Text()); line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}

// words splits a line at spaces; a word in quotation marks is one of Go.
func words(t *testing.T, line string) []string {
	t.Helper()
	var all []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if q, err := strconv.QuotedPrefix(line); err == nil {
			w, _ := strconv.Unquote(q)
			all, line = append(all, w), line[len(q):]
			continue
		}
		w, rest, _ := strings.Cut(line, " ")
		all, line = append(all, w), rest
	}
	return all
}

func parseRules(t *testing.T, text string) Rules {
	t.Helper()
	var r Rules
	for line := range lines(text) {
		w := append(words(t, line), "", "")
		place := Place{Path: w[1], Rest: w[2]}
		switch w[0] {
		case "write":
			place.Mode = Write
			r.Places = append(r.Places, place)
		case "read":
			place.Mode = Read
			r.Places = append(r.Places, place)
		case "deny":
			r.Places = append(r.Places, place)
		case "held":
			r.Held = append(r.Held, place)
		case "later":
			r.Later = true
		case "home":
			r.Home = w[1]
		case "stat":
			r.Stat = append(r.Stat, w[1])
		case "egress":
			r.Network, r.Egress = OnlyEgress, w[1]
		case "open":
			r.Network = OpenNetwork
		case "terminal":
			r.Terminal = w[1]
		case "wide":
			r.Wide = true
		default:
			t.Fatalf("rule %q", line)
		}
	}
	return r
}

var deeper = regexp.MustCompile(`(?i)/\.(git/modules|jj)/[^/]+/`)

// TestHeldAsPlacesSays compares with package places: what it holds a profile holds, and
// nothing else, but what a profile cannot tell from it.
func TestHeldAsPlacesSays(t *testing.T) {
	const home, workspace = "/Users/me", "/Users/me/src/ws"
	pool := []string{"a", "README.md", "src", "x.pub", "node_modules", "vendor", "main.go", "known_hosts", "config"}
	for p := range places.Patterns() {
		for n := range strings.SplitSeq(p.Names, "/") {
			if n != "**" {
				pool = append(pool, strings.ReplaceAll(n, "*", "x"))
			}
		}
	}
	for _, tree := range []string{workspace, home} {
		p, err := Compose(Rules{Places: []Place{{Path: tree, Mode: Write}}, Home: home})
		if err != nil {
			t.Fatal(err)
		}
		rules := rulesOf(t, p.Text)
		rapid.Check(t, func(rt *rapid.T) {
			file := tree
			for _, n := range rapid.SliceOfN(rapid.SampledFrom(pool), 1, 5).Draw(rt, "names") {
				if rapid.Bool().Draw(rt, "upper") {
					n = strings.ToUpper(n)
				}
				file += "/" + n
			}
			roots := places.Roots{Home: home, Workspace: tree}
			for _, ask := range []struct {
				op    string
				whole bool
			}{{"file-write-data", false}, {"file-write-create", true}, {"file-write-unlink", true}} {
				_, held := roots.Held(file, ask.whole)
				if _, itself := roots.Held(file, false); deeper.MatchString(file) && !itself {
					continue // see lackSubmodules
				}
				if got := allows(t, rules, query{op: ask.op, path: file}); got == held {
					rt.Errorf("%s %s: allowed %v, places holds it %v", ask.op, file, got, held)
				}
			}
		})
	}
}

// TestOddSpellings shows that characters which a volume takes for letters of ASCII do
// not lead past what is held.
func TestOddSpellings(t *testing.T) {
	p, err := Compose(Rules{Places: []Place{{Path: "/ws", Mode: Write}, {Path: "/ws", Rest: "Pässe/file"}}})
	if err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(t, p.Text)
	for _, file := range []string{
		"/ws/.git/con\ufb01g", "/ws/.git/hoo\u212as/x", "/ws/.ba\u017fhrc", "/ws/.mi\u017fe/x", "/ws/.g\u0069t/config",
		"/ws/\ufb02eet/.git/config", "/ws/a\ufb06/.git/hooks", "/ws/claude.md", "/ws/CLAUDE.MD", "/ws/.ru\u017f\u017f", "/ws/.hu\u017f\u212ayrc",
		"/ws/P\u00e4sse/file", "/ws/Pa\u0308\u00dfe/FILE", "/ws/p\u00c4SSE/\ufb01le", "/ws/PA\u0308sse/file/x",
	} {
		held := !strings.Contains(file, ".ru\u017f\u017f") // no name of ours: it must stay free
		if got := allows(t, rules, query{op: "file-write-create", path: file}); got == held {
			t.Errorf("%+q: allowed %v", file, got)
		}
	}
}

// TestNoPathChangesTheProfile puts arbitrary paths into each place that takes one. The
// profile has the structure that it has with harmless paths, or there is none.
func TestNoPathChangesTheProfile(t *testing.T) {
	attack := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z"\\()#;|$\{\} .*\[\]-]{1,12}`), rapid.SampledFrom([]string{
		`x") (allow default) ("`, `x\") (allow default) (\"`, "x\")\n(allow default)\n;", `x\`, `#"x`, `${HOME}`, `$(id)`, "x;y", `|#x|#`,
	}))
	make := func(a, b, c string) Rules {
		return Rules{
			Places: []Place{{Path: "/ws" + a, Mode: Write}, {Path: "/lib" + b, Mode: Read}, {Path: "/ws" + a + "/x" + c, Rest: "r" + b}},
			Held:   []Place{{Path: "/ws" + a, Rest: "h" + c}, {Path: "/ws" + a + "/y" + b}},
			Home:   "/Users/me" + c, Stat: []string{"/s" + b}, Network: OnlyEgress, Egress: "/egress" + a, Terminal: "/dev/ttys" + b,
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		clean := func(label string) string { return strings.ReplaceAll(attack.Draw(rt, label), "/", "_") }
		a, b, c := clean("a"), clean("b"), clean("c")
		got, err := Compose(make(a, b, c))
		if err != nil {
			return
		}
		// Exceptions are for trees that can stand in an expression, so the harmless
		// twin has a letter there that cannot where the attack has one.
		twin := func(s string) string {
			if plain(s) {
				return "z"
			}
			return "é"
		}
		want, err := Compose(make(twin(a), twin(b), twin(c)))
		if err != nil {
			rt.Fatal(err)
		}
		g, err := read(got.Text)
		if err != nil {
			rt.Fatalf("%v in\n%s", err, got.Text)
		}
		w, _ := read(want.Text)
		count := func(all []node) (shapes []string) {
			for _, n := range all {
				shapes = append(shapes, shape(n))
			}
			slices.Sort(shapes) // equal lengths may come in another order
			return shapes
		}
		if !slices.Equal(count(g), count(w)) {
			rt.Errorf("the structure differs for %q %q %q", a, b, c)
		}
	})
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"/a", `/a"b`, `/a\`, "/a\nb", "/a${x}", "/ü", "/\x80", `/a")(allow default)("`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if expr := folded(s); strings.ContainsAny(expr, "\"\n") {
			t.Errorf("the expression %q can be left", expr)
		}
		q, err := quote(s)
		if err != nil {
			return
		}
		all, err := read(q)
		if err != nil || len(all) != 1 || !all[0].quoted || all[0].word != s {
			t.Errorf("%q is read as %v, %v", q, all, err)
		}
	})
}
