package look

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestPlainAgreesWithLstat: whatever Plain answers, walking answers too.
func TestPlainAgreesWithLstat(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.MkdirAll(root+"/d/e", 0o750), os.WriteFile(root+"/d/f", nil, 0o640), os.Link(root+"/d/f", root+"/d/g"),
		os.Symlink("d", root+"/l"), os.Symlink("f", root+"/d/s"))
	if err != nil {
		t.Fatal(err)
	}
	_, said := Plain("/")
	if !said && runtime.GOOS == "linux" && os.Getenv("CI") == "true" {
		t.Error("this test needs Linux 5.6 and a filter that lets openat2 through")
	}
	for path, want := range map[string]struct{ plain, exists bool }{
		"": {true, true}, "/d": {true, true}, "/d/f": {true, true}, "/d/e": {true, true}, "/d/g": {true, true},
		"/l": {false, true}, "/l/f": {false, true}, "/d/s": {false, true}, "/d/no": {false, false}, "/d/f/x": {false, false},
	} {
		info, ok := Plain(root + path)
		walked, err := Lstat(root + path)
		if (err == nil) != want.exists {
			t.Errorf("Lstat %s: %v", path, err)
		}
		if ok && (!want.plain || info != walked) {
			t.Errorf("Plain %s: %+v, walking finds %+v", path, info, walked)
		}
		if !ok && want.plain && said {
			t.Errorf("Plain %s: no answer", path)
		}
	}
	if info, err := Lstat(root + "/d/f"); err != nil || info.Links != 2 || info.IsDir() || info.IsLink() {
		t.Errorf("Lstat: %+v, %v", info, err)
	}
}
