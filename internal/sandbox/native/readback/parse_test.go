package readback

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// parsers show what is read as the cases in testdata/parse.txt do.
var parsers = map[string]func(text string) (string, error){
	"status": func(text string) (string, error) {
		f, err := parseStatus(text)
		return fmt.Sprint(f.Name, " ", string(f.State), " ", f.PID, f.Threads, f.Seccomp, f.SeccompFilters, " ", f.NoNewPrivs, " ", f.CoreDumping,
			" ", f.UID, f.GID, f.Groups, f.NSpid, f.Caps), err
	},
	"limits": func(text string) (string, error) {
		limits, err := parseLimits(text)
		var all []string
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			l := limits[name]
			all = append(all, fmt.Sprint(name, " ", l.Soft, l.Hard, " ", l.Unit))
		}
		return strings.Join(all, "; "), err
	},
	"cgroup": func(text string) (string, error) {
		groups, err := parseCgroups(text)
		var all []string
		for _, c := range groups {
			all = append(all, fmt.Sprint(c.Hierarchy, c.Controllers, " ", c.Path))
		}
		return strings.Join(all, "; "), err
	},
	"mounts": func(text string) (string, error) {
		mounts, err := parseMounts(text)
		var all []string
		for _, m := range mounts {
			all = append(all, fmt.Sprintf("%d %d %s %q %q %v %v %s %q %v", m.ID, m.Parent, m.Device, m.Root, m.Point, m.Options, m.Optional, m.Type, m.Source, m.Super))
		}
		return strings.Join(all, "; "), err
	},
	"dev": func(text string) (string, error) {
		names, err := parseInterfaces(text)
		return fmt.Sprint(names), err
	},
	"trie": func(text string) (string, error) {
		n, err := parseTrie(text)
		return fmt.Sprint(n.Local, n.Routes), err
	},
	"routes6": func(text string) (string, error) {
		n, err := parseRoutes6(text)
		return fmt.Sprint(n.Local, n.Routes), err
	},
	"tcp6": func(text string) (string, error) {
		all, err := parseSockets("tcp6", text)
		return fmt.Sprint(all), err
	},
	"udp": func(text string) (string, error) {
		all, err := parseSockets("udp", text)
		return fmt.Sprint(all), err
	},
	"link": func(text string) (string, error) {
		v, err := parseLink(text)
		return fmt.Sprint(v), err
	},
}

type parseCase struct{ parser, name, text, want string }

func readCases(t interface{ Fatal(...any) }) []parseCase {
	text, err := os.ReadFile("testdata/parse.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []parseCase
	unescape := strings.NewReplacer(`\\`, `\`, `\s`, " ", `\t`, "\t")
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "== "); ok {
			parser, rest, _ := strings.Cut(name, " ")
			all = append(all, parseCase{parser: parser, name: rest})
		} else if body, ok := strings.CutPrefix(line, "|"); ok {
			body += "\n"
			if cut, ok := strings.CutSuffix(body, "$\n"); ok {
				body = cut
			}
			all[len(all)-1].text += unescape.Replace(body)
		} else if want, ok := strings.CutPrefix(line, "=> "); ok {
			all[len(all)-1].want = want
		}
	}
	return all
}

func TestParse(t *testing.T) {
	for _, c := range readCases(t) {
		got, err := parsers[c.parser](c.text)
		switch words, bad := strings.CutPrefix(c.want, "!"); {
		case c.want == "!!": // nothing to read is read as nothing
			if err != nil || got != "" {
				t.Errorf("%s %s: %s, %v", c.parser, c.name, got, err)
			}
		case bad:
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s %s: %v, want %s", c.parser, c.name, err, words)
			}
		case err != nil || got != c.want:
			t.Errorf("%s %s: %v\n got %s\nwant %s", c.parser, c.name, err, got, c.want)
		}
	}
}

// R2: a status without any one of its lines, or with any number spoilt, is refused.
func TestStatusIsWhole(t *testing.T) {
	whole := readCases(t)[0].text
	lines := strings.SplitAfter(whole, "\n")
	needed := []string{
		"State", "Pid", "Uid", "Gid", "Groups", "NSpid", "Threads",
		"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
	}
	for i, line := range lines {
		key, value, _ := strings.Cut(line, ":\t")
		if !slices.Contains(needed, key) {
			continue
		}
		without := strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")
		if _, err := parseStatus(without); err == nil {
			t.Errorf("no %s, and no error", key)
		}
		for _, spoilt := range []string{"-" + value, "x" + value, "\n", "99999999999999999999\n"} {
			if _, err := parseStatus(strings.Replace(whole, line, key+":\t"+spoilt, 1)); err == nil && (key != "Groups" || spoilt != "\n") {
				t.Errorf("%s is %q, and no error", key, spoilt)
			}
		}
	}
}

func fuzz(f *testing.F, parser string) {
	for _, c := range readCases(f) {
		if c.parser == parser {
			f.Add(c.text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parsers[parser](text); err == nil && got == "" && text != "" {
			t.Fatalf("%q is read as nothing", text)
		}
	})
}

func FuzzStatus(f *testing.F)  { fuzz(f, "status") }
func FuzzLimits(f *testing.F)  { fuzz(f, "limits") }
func FuzzCgroups(f *testing.F) { fuzz(f, "cgroup") }
func FuzzMounts(f *testing.F)  { fuzz(f, "mounts") }
func FuzzLink(f *testing.F)    { fuzz(f, "link") }

// What the kernel escapes is read back as it was.
func TestUnescape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.StringOf(rapid.SampledFrom([]rune(" \t\n\\#a0/"))).Draw(t, "path")
		escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(want)
		if got, ok := unescape(escaped); !ok || got != want {
			t.Fatalf("%q is read as %q", escaped, got)
		}
	})
}

// Each line is a table of mounts "id parent point[:options]", then path => id.
func TestMountOf(t *testing.T) {
	for _, line := range []string{
		"1 0 /, 2 1 /usr, 3 1 /w, 4 3 /w/sub: /usr/bin => 2, /usr => 2, /usrx => 1, / => 1, /w/sub/x => 4, /w/su => 3",
		"1 0 /, 2 1 /a/b, 3 1 /a: /a/b/c => 3, /a => 3",         // a later mount hides an earlier one
		"1 0 /, 2 1 /a, 3 2 /a, 4 3 /a/b: /a/x => 3, /a/b => 4", // one over the other
		"1 1 /, 2 1 /a: /a => 2, /b => 1",                       // the first mount of all
		"1 0 /, 2 1 /, 3 2 /a: /a => 3, /b => 2",                // a root over the root
		"5 9 /, 7 9 /x: /x => 5",                                // what hangs on no mount of ours
		"2 1 /a: /a => none, / => none",                         // no root to be seen
		"1 0 /, 2 3 /a, 3 2 /a: /a => 1",                        // a circle
		": / => none",
	} {
		table, paths, _ := strings.Cut(line, ": ")
		var f Facts
		for row := range strings.SplitSeq(table, ", ") {
			var m Mount
			if _, err := fmt.Sscan(row, &m.ID, &m.Parent, &m.Point); err != nil && row != "" {
				t.Fatal(err)
			} else if row != "" {
				f.Mounts = append(f.Mounts, m)
			}
		}
		for p := range strings.SplitSeq(strings.TrimPrefix(paths, " "), ", ") {
			path, want, _ := strings.Cut(p, " => ")
			m, ok := f.MountOf(path)
			if got := fmt.Sprint(m.ID); want == "none" && ok || want != "none" && got != want {
				t.Errorf("%s: %s is on %s (%v)", line, path, got, ok)
			}
		}
	}
}

func TestMountSays(t *testing.T) {
	for _, c := range []struct {
		m                     Mount
		ro, nosuid, propagate bool
	}{
		{Mount{Options: []string{"rw"}, Super: []string{"rw"}}, false, false, false},
		{Mount{Options: []string{"ro", "nosuid"}, Super: []string{"rw"}}, true, true, false},
		{Mount{Options: []string{"rw"}, Super: []string{"ro"}, Optional: []string{"shared:1"}}, true, false, true},
		{Mount{Options: []string{"rw"}, Optional: []string{"master:1"}}, false, false, true},
		{Mount{Options: []string{"rw"}, Optional: []string{"unbindable"}}, false, false, false},
		{Mount{}, false, false, false},
	} {
		if c.m.ReadOnly() != c.ro || c.m.Has("nosuid") != c.nosuid || c.m.Propagates() != c.propagate {
			t.Errorf("%+v", c.m)
		}
	}
}

// R3: what is not known differs from nothing.
func TestAgainst(t *testing.T) {
	ours := Facts{Namespaces: map[string]uint64{"mnt": 1, "net": 2, "user": 3}}
	for want, theirs := range map[string]map[string]uint64{
		"":        {"mnt": 1, "net": 2, "user": 3},
		"mnt net": {"net": 9, "mnt": 8, "user": 3, "time": 4},
		"user":    {"user": 4},
	} {
		if got := strings.Join((Facts{Namespaces: theirs}).Against(ours), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Facts{}).Against(ours); len(got) > 0 {
		t.Errorf("unknown ones differ: %q", got)
	}
}
