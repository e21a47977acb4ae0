package native

import (
	"errors"
	"os"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// homed is a box with a home of its own at a home of this machine, in which its workspace
// and a directory with programs lie.
func homed(t *testing.T, script string) (s sandbox.Spec, home, from string) {
	t.Helper()
	dir := t.TempDir()
	home, from = dir+"/home", dir+"/own/from"
	err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(home+"/src/ws/.git", 0o755), os.MkdirAll(home+"/.ssh", 0o755), os.MkdirAll(home+"/.local/share/tool", 0o755),
		os.MkdirAll(from, 0o755), os.WriteFile(home+"/.ssh/id", []byte("key"), 0o644), os.WriteFile(home+"/.bashrc", []byte("theirs"), 0o644),
		os.WriteFile(home+"/.local/share/tool/run", []byte("#!/bin/sh\necho tool\n"), 0o755), os.WriteFile(from+"/.kept", []byte("kept\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	s = sh(script)
	s.Profile = sandbox.ProfileAgent
	s.Env = append(s.Env, "HOME="+home)
	s.Workspace = sandbox.Workspace{Path: home + "/src/ws", Mode: sandbox.ReadWrite}
	s.ReadOnly = append(s.ReadOnly, home+"/.local/share/tool")
	s.Home = sandbox.Home{Path: home, From: from}
	return s, home, from
}

// TestHome: a box has a home of its own in the place of the person's, of which it sees
// nothing but what is named; what it writes there stays for the next box, and is not held,
// while its workspace beneath is.
func TestHome(t *testing.T) {
	const script = `cd ~; cat .kept; ls -A; ls -A src .local/share; cat .ssh/id .local/share/tool/run >/dev/null; .local/share/tool/run
echo mine >> .bashrc && mkdir -p .config/git .claude && echo x > .config/git/config && echo y > .claude/settings.json && cat .bashrc
echo x > .local/share/tool/new || echo read-only
echo x > src/ws/file && echo wrote
mkdir -p src/ws/.git/hooks; echo x > src/ws/.git/hooks/pre-commit || echo held
mv src moved || echo stays
ln -s /etc/passwd link && mv link link2 && rm .kept && echo ok`
	s, home, from := homed(t, script)
	out := run(t, full(), s, "")
	want := "kept\n.kept\n.local\nsrc\n.local/share:\ntool\n\nsrc:\nws\ntool\nmine\nread-only\nwrote\nheld\nstays\nok\n"
	if out.Exit.Status() != 0 || string(out.Stdout) != want {
		t.Fatalf("%v %s\n%s\nwant\n%s", out.Exit, out.Stdout, out.Stderr, want)
	}
	for name, want := range map[string]string{
		from + "/.bashrc": "mine\n", from + "/.config/git/config": "x\n", home + "/.bashrc": "theirs", home + "/src/ws/file": "x\n", from + "/src/ws/file": "-", home + "/.claude/settings.json": "-",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte("-")
		}
		if string(text) != want {
			t.Errorf("%s: %q", name, text)
		}
	}
	box, err := full().Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Wait(); err != nil {
		t.Error(err)
	}
	if text := box.Report().String(); !strings.Contains(text, "home=own") {
		t.Error(text)
	}
}

// TestHomePlanted: what a box puts in its home where something of this machine is to be
// mounted the next time does not lead that elsewhere: there is no box then.
func TestHomePlanted(t *testing.T) {
	for what, plant := range map[string]func(from string) error{
		"a link": func(from string) error { return os.Symlink("/etc", from+"/src") },
		"a link to a place of its own": func(from string) error {
			return errors.Join(os.Mkdir(from+"/other", 0o755), os.Symlink("other", from+"/src"))
		},
		"a file": func(from string) error { return os.WriteFile(from+"/src", nil, 0o644) },
	} {
		s, home, from := homed(t, "echo x > "+t.TempDir()+"/ran")
		if err := plant(from); err != nil {
			t.Fatal(err)
		}
		_, err := sandbox.Run(t.Context(), full(), s, nil)
		if !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), from) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(home + "/src/ws"); err != nil {
			t.Error(err)
		}
	}
	s, _, _ := homed(t, "true")
	if _, err := sandbox.Run(t.Context(), kinds["plain"], s, nil); !errors.Is(err, sandbox.ErrNotBuilt) {
		t.Errorf("plain: %v", err)
	}
}
