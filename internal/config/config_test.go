package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

func noEnv(string) (string, bool) { return "", false }

// homes unpacks testdata/load.txtar into one home for each case.
func homes(t *testing.T) (root string, names []string) {
	t.Helper()
	ar, err := txtar.ParseFile("testdata/load.txtar")
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	for _, f := range ar.Files {
		name := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		if home, _, _ := strings.Cut(f.Name, "/"); !slices.Contains(names, home) {
			names = append(names, home)
		}
	}
	return root, names
}

func TestLoad(t *testing.T) {
	root, names := homes(t)
	_, defaults, err := load(filepath.Join(root, "none"), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		home := filepath.Join(root, name)
		env := map[string]string{}
		raw, _ := os.ReadFile(filepath.Join(home, "env"))
		for line := range strings.Lines(string(raw)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			env[k] = v
		}
		c, got, err := load(home, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		var b strings.Builder
		for _, s := range got {
			if !slices.Contains(defaults, s) && (s.Source != FromFile || s.Value != valueOf(defaults, s.Key)) {
				fmt.Fprintf(&b, "%s = %s (%s)\n", s.Key, s.Value, strings.TrimSpace(string(s.Source)+" "+s.Where))
			}
		}
		if c.Box.Passed != "" {
			fmt.Fprintf(&b, "passed over: %s\n", c.Box.Passed)
		}
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v is not ErrInvalid", name, err)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				fmt.Fprintf(&b, "error: %s\n", line)
			}
		}
		out := strings.ReplaceAll(b.String(), home, "HOME")
		want, err := os.ReadFile(filepath.Join(home, "expect"))
		if err != nil {
			t.Fatal(err)
		}
		if out != string(want) {
			t.Errorf("%s:\n%swant\n%s", name, out, want)
		}
	}
}

func valueOf(p Provenance, key string) string {
	for _, s := range p {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// TestEffects: every setting of the file reaches the Config (a setting that is
// read and ignored is worse than none).
func TestEffects(t *testing.T) {
	root, _ := homes(t)
	c, _, err := load(filepath.Join(root, "whole"), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if c.AskWait != time.Minute || c.Idle != 0 || c.Log.String() != "INFO" || c.Policies.Organisation != "/etc/ringfence/policy" ||
		!slices.Equal(c.Approvers["alice"], []string{"owner", "security"}) || !slices.Equal(c.Approvers["1000"], []string{"owner"}) {
		t.Errorf("got %+v", c)
	}
	c, _, err = load(filepath.Join(root, "box"), noEnv)
	if want := (Box{"container", false, "", Container{Image: "debian:12", Runtime: "podman", Memory: 1 << 30, CPUs: 1.5, Timeout: time.Minute}}); err != nil || c.Box != want {
		t.Errorf("got %+v, %v", c.Box, err)
	}
	c, _, err = load(filepath.Join(root, "environment-tightens"), func(k string) (string, bool) {
		if k != EnvAsk {
			return "", false
		}
		return "never", true
	})
	if err != nil || !c.AskNever {
		t.Errorf("AskNever %v, %v", c.AskNever, err)
	}
	c, _, err = load(filepath.Join(root, "user-policies"), noEnv)
	if err != nil || c.AskWait != 5*time.Minute || c.Idle != 10*time.Minute || c.Policies.User == "" || c.Policies.Organisation != "" {
		t.Errorf("defaults: %+v, %v", c, err)
	}
}

// TestWritableByOthers is C3.
func TestWritableByOthers(t *testing.T) {
	home := t.TempDir()
	name := filepath.Join(home, "config.json")
	if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(home, noEnv); !errors.Is(err, ErrInvalid) {
		t.Errorf("a file that others may write to: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"ask":{"seconds":60},"approvers":{"a":["b"]}}`))
	f.Add([]byte(`{"approvers":{"a/~b":[""]}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		l := &loader{path: "config.json", src: src, home: "/nowhere"}
		if err := l.all(noEnv); err == nil && (l.config.AskWait < 10*time.Second || l.config.AskWait > time.Hour) {
			t.Errorf("%q gives %v", src, l.config.AskWait)
		}
	})
}
