package resolve

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestRepositoriesThatWereMissed: what a program can make a repository of, or reach one
// by, is found with all places of its history, or the tree is refused.
func TestRepositoriesThatWereMissed(t *testing.T) {
	const bare = "mkdir -p $/objects/info $/objects/pack $/refs/heads; echo 'ref: refs/heads/main' > $/HEAD"
	is := func(d string) string { return strings.ReplaceAll(bare, "$", d) + ";" }
	for name, c := range map[string]struct{ make, places, refused string }{
		"closed directory":            {make: is("closed/r/.git") + "chmod 0 closed", refused: "chmod u+rwx"},
		"directory without a list":    {make: is("xonly/r/.git") + "chmod 311 xonly", refused: "chmod u+rwx"},
		"directory without a way in":  {make: is("r") + "chmod 600 r", refused: "chmod u+rwx"},
		"closed .git":                 {make: is("r/.git") + "chmod 0 r/.git", refused: "chmod u+rwx"},
		"closed refs":                 {make: is("r/.git") + "chmod 0 r/.git/refs", refused: "chmod u+rwx"},
		"closed file .git":            {make: is("far") + "mkdir r; echo gitdir: ../far > r/.git; chmod 0 r/.git", refused: "could not be read"},
		"closed alternates":           {make: is("r/.git") + "echo /x > r/.git/objects/info/alternates; chmod 0 r/.git/objects/info/alternates", refused: "could not be read"},
		"bare with an empty .git":     {make: is("b") + "mkdir b/.git", places: "b/.git b"},
		"bare with junk as .git":      {make: is("b") + "echo junk > b/.git", places: "b"},
		"bare with .git to nowhere":   {make: is("b") + "ln -s nowhere b/.git", places: "b"},
		"bare with another .git":      {make: is("b") + is("b/.git"), places: "b/.git b"},
		".git is a link to a file":    {make: is("far") + "mkdir r; echo gitdir: ../far > file; ln -s ../file r/.git", places: "far far"},
		"zero byte in .git":           {make: is("far") + "mkdir r; printf 'gitdir: ../far\\0junk\\n' > r/.git; head -c 9000 /dev/zero >> r/.git", places: "far far"},
		"zero byte in commondir":      {make: is("far") + "mkdir -p r/.git; echo x > r/.git/HEAD; printf '../../far\\0junk' > r/.git/commondir", places: "far r/.git far"},
		"refs is a link":              {make: is("r/.git") + "mv r/.git/refs real; ln -s ../../real r/.git/refs", places: "r/.git real"},
		"refs/heads is a link":        {make: is("r/.git") + "mv r/.git/refs/heads real; ln -s ../../../real r/.git/refs/heads", places: "r/.git real"},
		"objects is a link":           {make: is("r/.git") + "mv r/.git/objects real; ln -s $PWD/real r/.git/objects", places: "r/.git real"},
		"HEAD is a link":              {make: is("r/.git") + "mkdir r/.git/x; mv r/.git/HEAD real; ln -s ../../real r/.git/HEAD", places: "r/.git real"},
		"packed-refs is a link":       {make: is("r/.git") + "touch real; ln -s ../../real r/.git/packed-refs", places: "r/.git real"},
		"config is a link":            {make: is("r/.git") + "touch real; ln -s ../../real r/.git/config", places: "r/.git real"},
		"logs is a link":              {make: is("r/.git") + "mkdir real; ln -s ../../real r/.git/logs", places: "r/.git real"},
		"link beyond a link":          {make: is("r/.git") + "mkdir real end; ln -s ../end real/heads; rm -r r/.git/refs; ln -s ../../real r/.git/refs", places: "r/.git real end"},
		"links of a bare one":         {make: is("b") + "mv b/refs real; ln -s ../real b/refs", places: "b real"},
		"links of a shared directory": {make: is("far") + "mv far/refs real; ln -s ../real far/refs; mkdir -p r/.git; echo ../../far > r/.git/commondir", places: "far real r/.git far real"},
		"link to what is not there":   {make: is("r/.git") + "ln -s ../../later r/.git/packed-refs", refused: "remove the link"},
		"link in a circle":            {make: is("r/.git") + "ln -s logs r/.git/logs", refused: "link"},
		"link that stays":             {make: is("r/.git") + "ln -sf refs/heads/main r/.git/HEAD; mkdir r/.git/objects/ab; ln -s /nowhere r/.git/objects/ab/cd", places: "r/.git"},
		"alternates":                  {make: is("r/.git") + "mkdir lent two; printf '#x\\n../../../lent\\n\"'$PWD'/t\\167o\"\\n/nowhere\\n' > r/.git/objects/info/alternates", places: "r/.git lent two"},
		"alternates of alternates":    {make: is("r/.git") + "mkdir -p lent/info two; echo ../../../lent > r/.git/objects/info/alternates; echo ../two > lent/info/alternates", places: "r/.git lent two"},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			script(t, root, c.make)
			found, err := asUser(t, root)
			var places []string
			for _, r := range found {
				for _, p := range r.Places {
					places = append(places, strings.TrimPrefix(p, root+"/"))
				}
			}
			if got := strings.Join(places, " "); got != c.places || (err == nil) != (c.refused == "") {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Error(err)
			}
		})
	}
	root := t.TempDir()
	script(t, root, is("b")+"mv b/refs real; ln -s ../real b/refs")
	inside := filepath.Join(root, "b/objects")
	if found, err := (View{}).Repositories(inside); err != nil || len(found) != 1 || len(found[0].Places) != 2 {
		t.Errorf("in a repository: %v, %v", found, err)
	}
}

// asUser finds the repositories in root as a user who cannot open everything.
func asUser(t *testing.T, root string) ([]Repository, error) {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() == 0 {
		err := filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, nobody, nobody)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread() // setfsuid(2) is of one thread
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	return View{}.Repositories(root)
}

// script runs text in root, with which everything in it goes again.
func script(t *testing.T, root, text string) {
	t.Helper()
	sh := func(text string) {
		cmd := exec.Command("/bin/sh", "-ec", text)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	sh(text)
	t.Cleanup(func() { sh("chmod -R u+rwX .") })
}
