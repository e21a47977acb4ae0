package hold

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// A story is a case of testdata: scripts and lists, by what they are.
type story struct {
	name  string
	parts map[string]string
}

func stories(t *testing.T, file string) []story {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []story
	for _, f := range a.Files {
		at := strings.LastIndexByte(f.Name, '/')
		name, part := f.Name[:at], f.Name[at+1:]
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, story{name, map[string]string{}})
		}
		all[len(all)-1].parts[part] = string(f.Data)
	}
	return all
}

const repo = `repo() { git init -q "$1" && git -C "$1" config user.name a && git -C "$1" config user.email a@b && git -C "$1" commit -q --allow-empty -m a; }
`

// outside runs script in ws without a box.
func (b *box) outside(script string) {
	b.t.Helper()
	c := exec.Command("sh", "-c", "umask 022\n"+repo+script)
	c.Dir = b.ws
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		b.t.Errorf("%v: %s", err, out)
	}
}

func (b *box) play(s story) string {
	b.t.Helper()
	b.options.Rules.Held = []string{b.ws + "/keep/deep/file", b.ws + "/absent/name", b.ws + "/held-r\u00e9"}
	b.outside(s.parts["before"])
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(s.parts["do"], "$OPS") {
		if err := os.WriteFile(b.dir+"/ops", self, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	out, _ := b.run(s.parts["do"], "env", "OPS="+b.dir+"/ops", "sh")
	b.outside(s.parts["after"])
	return out
}

// TestAttacks: after whatever a program tries, what is held is as it was.
func TestAttacks(t *testing.T) {
	for _, s := range stories(t, "testdata/attacks.txtar") {
		t.Run(s.name, func(t *testing.T) {
			b := newBox(t)
			out := b.play(s)
			if want, ok := s.parts["denied"]; ok {
				same(t, "denied", b.refused(), want)
			}
			if want, ok := s.parts["born"]; ok {
				b.mu.Lock()
				same(t, "born", b.births, want)
				b.mu.Unlock()
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func same(t *testing.T, what string, got []string, want string) {
	t.Helper()
	w := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	if want == "" {
		w = nil
	}
	slices.Sort(got)
	slices.Sort(w)
	if !slices.Equal(got, w) {
		t.Errorf("%s: %q, want %q", what, got, w)
	}
}
