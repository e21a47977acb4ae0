package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCommitter: git in a box knows who commits, as the repository, or else the person,
// says it; what was given by name stays.
func TestCommitter(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for name, text := range map[string]string{
		".gitconfig":         "[user]\n\tname = A Person\n\temail = a@example.org\n",
		"own/.git/HEAD":      "ref: refs/heads/main\n",
		"own/.git/objects/x": "",
		"own/.git/refs/x":    "",
		"own/.git/config":    "[user]\n\temail = \"b@example.org\"\n",
		"odd/.git/HEAD":      "ref: refs/heads/main\n",
		"odd/.git/objects/x": "",
		"odd/.git/refs/x":    "",
		"odd/.git/config":    "[user]\n\tname = \"x\\ny\"\n",
		"none/file":          "",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for workspace, want := range map[string][]string{
		"none": {"GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A Person"},
		"own":  {"GIT_AUTHOR_EMAIL=b@example.org", "GIT_COMMITTER_EMAIL=b@example.org", "GIT_COMMITTER_NAME=A Person"},
		"odd":  {"GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_EMAIL=a@example.org"},
		"gone": nil,
	} {
		if got := committer(filepath.Join(dir, workspace), []string{"GIT_AUTHOR_NAME=given"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", workspace, got, want)
		}
	}
}
