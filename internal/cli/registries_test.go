package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"ringfence/internal/config"
)

// TestManagersOfAProject: a program that an agent has put where a person's $PATH leads, such
// as the environment of a project, is not started outside of a box to be asked anything.
func TestManagersOfAProject(t *testing.T) {
	project, home := t.TempDir(), t.TempDir()
	mark := filepath.Join(home, "ran")
	for _, name := range []string{"npm", "node", "pip", "python3", "go", "env"} {
		if err := os.WriteFile(filepath.Join(project, name), []byte("#!/bin/sh\necho >"+mark+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("RINGFENCE_HOME", home)
	t.Setenv("HOME", home)
	t.Setenv("PATH", project+":/usr/bin:/bin")
	registriesOf(t.Context(), config.Config{})
	if _, err := os.Lstat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
}
