package ipc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectoriesOfOthers: a socket that other users are let in by is not put where one
// of them could replace it, or a directory on the way to it.
func TestDirectoriesOfOthers(t *testing.T) {
	root := os.Geteuid() == 0
	for name, c := range map[string]struct {
		mode    os.FileMode // of the parent
		chown   string
		dir     string
		refused string
	}{
		"all is ours":              {mode: 0o755, dir: "p/d"},
		"sticky parent":            {mode: 0o777 | os.ModeSticky, dir: "p/d"},
		"a link":                   {mode: 0o755, dir: "l/d"},
		"a link to the directory":  {mode: 0o755, dir: "p/abs"},
		"a circle of links":        {mode: 0o755, dir: "circle", refused: "following the link"},
		"parent that others write": {mode: 0o777, dir: "p/d", refused: "others may write"},
		"behind a link":            {mode: 0o777, dir: "l/d", refused: "others may write"},
		"nothing there":            {mode: 0o755, dir: "p/none", refused: "no such file"},
		"parent of another":        {mode: 0o755, dir: "p/d", chown: "p", refused: "another user"},
		"directory of another":     {mode: 0o755, dir: "p/d", chown: "p/d", refused: "another user"},
		"link of another":          {mode: 0o755, dir: "l/d", chown: "l", refused: "another user"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.chown != "" && !root {
				if os.Getenv("CI") == "true" {
					t.Fatal("needs root, to give files away")
				}
				t.Skip("needs root, to give files away")
			}
			top, err := os.MkdirTemp("", "rf")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(top)
			in := func(name string) string { return filepath.Join(top, name) }
			for _, err := range []error{
				os.MkdirAll(in("p/d"), 0o755), os.Symlink("p", in("l")), os.Symlink(in("p/d"), in("p/abs")), os.Symlink("circle", in("circle")),
				os.Chmod(in("p"), c.mode),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.chown != "" {
				if err := os.Lchown(in(c.chown), 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
			l, err := ListenForOthers(in(c.dir + "/s"))
			if err == nil {
				err = l.Close()
			}
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
	if _, err := ListenForOthers("s"); err == nil {
		t.Error("a relative path was taken")
	}
}
