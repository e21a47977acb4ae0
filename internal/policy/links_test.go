package policy

import (
	"slices"
	"strings"
	"testing"
)

// leads is the file system of testdata/links.txt.
func leads(path string) (string, bool) {
	for _, l := range []struct {
		from, to string
		sure     bool
	}{{"/lnk", "/w/real", false}, {"/home/u/src", "/mnt/src", false}, {"/var/run", "/run", true}, {"/odd", "nowhere", true}} {
		if inDir(path, l.from) {
			return l.to + strings.TrimPrefix(path, l.from), l.sure
		}
	}
	return path, false
}

func TestLinks(t *testing.T) {
	bind := Binding{Workspace: "/w", Home: "/home/u", Links: leads}
	for _, b := range readBlocks(t, "testdata/links.txt") {
		t.Run(b.name, func(t *testing.T) {
			p := b.bound(t, bind)
			for _, line := range b.calls {
				call, want, _ := strings.Cut(line, " => ")
				if got := result(p.Decide(parseCall(t, call))); got != want {
					t.Errorf("%s => %s, want %s", call, got, want)
				}
			}
			bind := bind
			bind.Links = func(path string) (string, bool) { return path, false }
			if plain := b.bound(t, bind); plain.Hash() == p.Hash() || len(plain.Links()) > 0 {
				t.Errorf("without links: %v, hash the same: %v", plain.Links(), plain.Hash() == p.Hash())
			}
		})
	}
}

// TestLinksAreTold: each link that a clause names is told, with what became of it.
func TestLinksAreTold(t *testing.T) {
	told := map[string]string{"restriction-through-a-link": "", "permission-through-a-link": "", "list-through-links": ""}
	for _, b := range readBlocks(t, "testdata/links.txt") {
		var all []string
		for _, l := range b.bound(t, Binding{Workspace: "/w", Home: "/home/u", Links: leads}).Links() {
			all = append(all, l.String())
		}
		told[b.name] = strings.Join(all, "\n")
	}
	const count, idle = ": as long as it is when a session begins, that counts too", ": an agent could have made it, so nothing is allowed there; name "
	for name, want := range map[string]string{
		"restriction-through-a-link": "c2 names /lnk/secret, which is a link to /w/real/secret" + count,
		"permission-through-a-link":  "c1 names /home/u/src, which is a link to /mnt/src" + idle + "/mnt/src",
		"list-through-links":         "@linked names /lnk, which is a link to /w/real" + idle + "/w/real",
	} {
		if !slices.Contains(strings.Split(told[name], "\n"), want) {
			t.Errorf("%s: want %q in\n%s", name, want, told[name])
		}
	}
}
