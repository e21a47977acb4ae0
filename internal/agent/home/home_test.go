//go:build unix

package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence/internal/agent/external"
)

// someone is an agent with settings, a file for a key, and instructions.
func someone() external.Adapter {
	return external.Adapter{
		Name: "someone",
		Files: []external.File{
			{Path: "~/.one/settings.json", Form: "json", Keep: []string{"theme"}, Set: []byte(`{"url":"${URL}","token":"${TOKEN}"}`)},
			{Path: "~/.one/auth.json", Form: "json", NeedsKey: true, Set: []byte(`{"key":"${KEY}"}`)},
		},
		Instructions: []string{"~/.one/NOTES.md", "~/.one/skills", "~/.one/login.json"},
		Credentials:  []string{"~/.one/login.json"},
	}
}

// put writes files beneath dir.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func text(path ...string) string {
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return "-"
	}
	return string(b)
}

func open(t *testing.T, base, workspace string) Home {
	t.Helper()
	h, err := Open(base, "someone", workspace, -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func settle(t *testing.T, h Home, person, key string) []string {
	t.Helper()
	notes, err := h.Settle(someone(), person, external.Values{Home: "/home/u", URL: "http://x", Token: "tok", Key: key}, false)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// TestSettle (H2, H3): a home gets what the agent needs, the person's settings that it keeps,
// and what he wrote for it; no key of his. What the agent changed stays, until he changes his.
func TestSettle(t *testing.T) {
	base, person := t.TempDir(), t.TempDir()
	put(t, person, map[string]string{
		".one/settings.json": `{"theme":"dark","apiKey":"k","mcpServers":{}}`, ".one/NOTES.md": "notes", ".one/skills/a/SKILL.md": "skill", ".one/login.json": "login", ".one/other": "x",
	})
	h := open(t, base, "/w")
	if !h.Fresh || open(t, base, "/w").Fresh || open(t, base, "/other").Dir == h.Dir {
		t.Error("a home is not one of a workspace")
	}
	settle(t, h, person, "")
	if got := text(h.Dir, ".one/settings.json"); !strings.Contains(got, `"theme": "dark"`) || !strings.Contains(got, `"token": "tok"`) || strings.Contains(got, "apiKey") {
		t.Errorf("settings %s", got)
	}
	for name, want := range map[string]string{".one/NOTES.md": "notes", ".one/skills/a/SKILL.md": "skill", ".one/login.json": "-", ".one/other": "-", ".one/auth.json": "-"} {
		if got := text(h.Dir, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	put(t, h.Dir, map[string]string{".one/NOTES.md": "the agent's", ".one/settings.json": `{"theme":"light","own":1}`})
	settle(t, h, person, "sentinel")
	if got := text(h.Dir, ".one/settings.json"); text(h.Dir, ".one/NOTES.md") != "the agent's" || !strings.Contains(got, `"theme": "light"`) || !strings.Contains(got, `"own": 1`) {
		t.Errorf("what the agent changed is gone: %s", got)
	}
	if got := text(h.Dir, ".one/auth.json"); !strings.Contains(got, "sentinel") {
		t.Errorf("the key is %s", got)
	}
	put(t, person, map[string]string{".one/NOTES.md": "newer"})
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(person, ".one/NOTES.md"), later, later); err != nil {
		t.Fatal(err)
	}
	if settle(t, h, person, ""); text(h.Dir, ".one/NOTES.md") != "newer" {
		t.Error("what the person changed does not come")
	}
}

// TestSettlePlanted (H1): what an agent plants in its home has us write or read nothing
// elsewhere.
func TestSettlePlanted(t *testing.T) {
	for what, plant := range map[string]func(dir, outside string) error{
		"the directory is a link": func(dir, outside string) error { return os.Symlink(outside, dir+"/.one") },
		"the file is a link": func(dir, outside string) error {
			return errors.Join(os.Mkdir(dir+"/.one", 0o700), os.Symlink(outside+"/victim", dir+"/.one/settings.json"))
		},
		"the file beside is a link": func(dir, outside string) error {
			return errors.Join(os.Mkdir(dir+"/.one", 0o700), os.Symlink(outside+"/victim", dir+"/.one/settings.json.ringfence-new"))
		},
		"the file is a pipe": func(dir, _ string) error {
			return errors.Join(os.Mkdir(dir+"/.one", 0o700), syscall.Mkfifo(dir+"/.one/settings.json", 0o600))
		},
		"the file is a directory": func(dir, _ string) error { return os.MkdirAll(dir+"/.one/settings.json/x", 0o700) },
		"instructions are a link": func(dir, outside string) error {
			return errors.Join(os.Mkdir(dir+"/.one", 0o700), os.Symlink(outside, dir+"/.one/skills"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			base, person, outside := t.TempDir(), t.TempDir(), t.TempDir()
			put(t, outside, map[string]string{"victim": `{"theme":"victim's"}`})
			put(t, person, map[string]string{".one/skills/SKILL.md": "skill"})
			h := open(t, base, "/w")
			if err := plant(h.Dir, outside); err != nil {
				t.Fatal(err)
			}
			_, err := h.Settle(someone(), person, external.Values{Token: "tok"}, false)
			entries, lerr := os.ReadDir(outside)
			if lerr != nil || len(entries) != 1 || text(outside, "victim") != `{"theme":"victim's"}` {
				t.Errorf("outside there is %v now: %s (%v)", entries, text(outside, "victim"), err)
			}
			if err == nil && strings.Contains(text(h.Dir, ".one/settings.json"), "victim's") {
				t.Error("what is outside was read")
			}
		})
	}
}

// TestSkillBringsNoKey (H2): files with keys that lie beside a skill stay where they are.
func TestSkillBringsNoKey(t *testing.T) {
	base, person := t.TempDir(), t.TempDir()
	kept := map[string]string{".one/skills/a/SKILL.md": "skill", ".one/skills/a/run.sh": "x", ".one/skills/a/secrets.md": "x"}
	left := map[string]string{
		".one/skills/a/.env": "KEY=1", ".one/skills/a/.env.local": "KEY=1", ".one/skills/a/Credentials.json": "k", ".one/skills/a/.git/config": "k",
		".one/skills/id_ed25519": "k", ".one/skills/a/tls.key": "k", ".one/skills/a/.aws/credentials": "k", ".one/skills/a/token.json": "k",
	}
	put(t, person, kept)
	put(t, person, left)
	h := open(t, base, "/w")
	settle(t, h, person, "")
	for name, want := range kept {
		if got := text(h.Dir, name); got != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	for name := range left {
		if got := text(h.Dir, name); got != "-" {
			t.Errorf("%s came along: %q", name, got)
		}
	}
}

// TestSettleMuch: instructions without end are not taken over, and that is told.
func TestSettleMuch(t *testing.T) {
	base, person := t.TempDir(), t.TempDir()
	deep := ".one/skills"
	for range maxDepth + 2 {
		deep += "/d"
	}
	put(t, person, map[string]string{deep + "/x": "x"})
	notes := settle(t, open(t, base, "/w"), person, "")
	if len(notes) != 1 || !strings.Contains(notes[0], "~/.one/skills was not taken over") {
		t.Errorf("%q", notes)
	}
}
