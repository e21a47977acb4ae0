package resolve

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLeads: where names of places lead, and which links an agent could have made.
func TestLeads(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/real/sub", "/home"} {
		if err := os.MkdirAll(root+d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"/lnk": "real", "/home/src": root + "/real", "/loop": "loop", "/gone": "not/there"} {
		if err := os.Symlink(to, root+name); err != nil {
			t.Fatal(err)
		}
	}
	v := View{Workspace: root + "/real", Home: root + "/home"}
	for p, want := range map[string]string{
		"/real/sub": "/real/sub", "/lnk/sub": "/real/sub", "/lnk/secret/x": "/real/secret/x", "/home/src/a": "/real/a",
		"/loop/x": "/loop/x", "/gone/x": "/not/there/x", "/missing/x": "/missing/x",
	} {
		if real, sure := v.Leads(root + p); real != root+want || sure {
			t.Errorf("%s leads to %s, sure %v; want %s", p, real, sure, want)
		}
	}
	for _, p := range []string{"/var/run", "/bin", "/lib"} {
		if fi, err := os.Lstat(p); err != nil || fi.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if real, sure := v.Leads(p + "/x"); real == p+"/x" || !sure {
			t.Errorf("%s leads to %s, sure %v", p, real, sure)
		}
		if _, sure := (View{Workspace: "/"}).Leads(p + "/x"); sure {
			t.Errorf("%s is in the workspace", p)
		}
	}
}
