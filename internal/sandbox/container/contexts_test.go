package container

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestContexts: where the context of docker leads, as testdata/contexts.txt has it.
func TestContexts(t *testing.T) {
	f, err := os.Open("testdata/contexts.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if sc.Text() == "" || strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		files, want, _ := strings.Cut(sc.Text(), " => ")
		given, files, ok := strings.Cut(files, " : ")
		if !ok {
			given, files = "", given
		}
		config, meta, _ := strings.Cut(files, " ; ")
		home := t.TempDir()
		dir, name := "", given
		kept := filepath.Join(home, ".docker")
		if strings.HasPrefix(given, "HOME") {
			place, n, _ := strings.Cut(given, " ")
			dir, name = strings.ReplaceAll(place, "HOME", home), n
			kept = dir
		}
		named := filepath.Join(kept, "contexts/meta", fmt.Sprintf("%x", sha256.Sum256([]byte("mine"))))
		if err := os.MkdirAll(named, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{filepath.Join(kept, "config.json"): config, filepath.Join(named, "meta.json"): meta} {
			if text == "" || text == "-" {
				continue
			}
			if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "HOME", home)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		list, err := byContext(places(1000, home), home, dir, name)
		var got []string
		for _, p := range list {
			if p.kind == RuntimeDocker {
				got = append(got, fmt.Sprintf("%s %s own=%v", p.context, strings.ReplaceAll(p.socket, home, "HOME"), p.own))
			}
		}
		said := strings.Join(got, ", ")
		switch {
		case err != nil:
			said = "error: " + err.Error()
		case len(list) == len(places(1000, home)):
			said = "usual"
		}
		if said != want && (err == nil || !strings.HasPrefix(want, "error: ") || !strings.Contains(said, strings.TrimPrefix(want, "error: "))) {
			t.Errorf("%s\n\tleads to %s\n\tnot to  %s", files, said, want)
		}
	}
}
