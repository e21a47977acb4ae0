package hold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// layOut makes the files of a in a new directory, whose real path it returns. A
// name that ends in "/" is a directory, one with " -> " a link, one with "*" executable.
func layOut(t *testing.T, a *txtar.Archive) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		name, target, isLink := strings.Cut(f.Name, " -> ")
		p := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		default:
			p, executable := strings.CutSuffix(p, "*")
			mode := os.FileMode(0o600)
			if executable {
				mode = 0o700
			}
			err = os.WriteFile(p, []byte(strings.ReplaceAll(string(f.Data), "$TOP", top)), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// TestFollow: the archives of testdata/follow. Their comments say what is followed, or
// which words an error has.
func TestFollow(t *testing.T) {
	files, err := filepath.Glob("testdata/follow/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		top := layOut(t, a)
		r := Rules{Writable: []string{top + "/ws", top + "/more"}, Home: top + "/home"}
		followed, err := r.Follow(top+"/ws", top+"/etc/gitconfig", top+"/home/.gitconfig")
		var got, want []string
		for _, l := range followed {
			if l.Path == "" {
				got = append(got, "told "+strings.ReplaceAll(l.Object, top+"/", ""))
				continue
			}
			if l.Home {
				got = append(got, "home "+strings.TrimPrefix(l.Path, top+"/"))
				continue
			}
			got = append(got, "followed "+strings.TrimPrefix(l.Path, top+"/"))
		}
		for line := range strings.Lines(string(a.Comment)) {
			line = strings.TrimSpace(line)
			if words, ok := strings.CutPrefix(line, "error "); ok {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%s: %v, want %s", name, err, words)
				}
				err, want = nil, got
			} else if line != "" && line[0] != '#' {
				want = append(want, line)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q, %v", name, got, want, err)
		}
		r.Later = true
		if followed, err := r.Follow(top + "/ws"); err != nil || len(followed) > 0 {
			t.Errorf("%s: where nothing is held, %v is, %v", name, followed, err)
		}
	}
}

// plant makes a repository in dir, below it or bare, that runs what is in another place.
func plant(dir, git string) error {
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "", "config": "[core]\nhooksPath = " + dir + "/run-later\n"} {
		p := filepath.Join(dir, git+name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// TestFollowTellsItsEnd: an agent that fills a tree, so that the next box holds less, does not
// do so unseen; what is near the top is held all the same, and so is what a repository says
// that is where nothing is listed any more.
func TestFollowTellsItsEnd(t *testing.T) {
	for name, fill := range map[string]func(top string) error{
		"many directories": func(top string) error {
			for i := range MaxDirectories + 1 {
				if err := os.MkdirAll(fmt.Sprintf("%s/d/%d", top, i), 0o755); err != nil {
					return err
				}
			}
			return plant(fmt.Sprintf("%s/d/%d", top, MaxDirectories), ".git/")
		},
		"many entries": func(top string) error {
			for i := range maxListed + 1 {
				if err := os.Symlink("x", fmt.Sprintf("%s/d/%d", top, i)); err != nil {
					return err
				}
			}
			return plant(top+"/d", "")
		},
		"many levels": func(top string) error {
			deep := strings.Repeat("/d", levels)
			return errors.Join(os.MkdirAll(top+deep+"/d", 0o755), plant(top+deep, ".git/"))
		},
		"none": func(top string) error { return plant(top+"/d", "") },
	} {
		top := t.TempDir()
		if err := errors.Join(os.MkdirAll(top+"/d", 0o755), os.Symlink("s/c", top+"/.envrc"), fill(top)); err != nil {
			t.Fatal(err)
		}
		led, err := (Rules{Writable: []string{top}}).Follow(top)
		paths, told := "", ""
		for _, l := range led {
			if l.Path == "" {
				told += l.By
			}
			paths += l.Path
		}
		if err != nil || !strings.Contains(paths, "/s/c") || !strings.Contains(paths, "/run-later") || (told == "") != (name == "none") {
			t.Errorf("%s: %v, told %q, %v", name, led, told, err)
		}
	}
}

func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		"[core]\n\thooksPath = a/b # c\n", "[includeIf \"gitdir:~/x\"] path = \"y z\" ; d\n", "[a \"b\\\"c\"]d=e\\\nf\n", "x", "[", "[a", "[a \"b", "[a]\nb", "[a]b=\"\\", "\ufeff[a]\r\nb=c\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		for key, value := range settings(s) {
			if n++; n > len(s) || len(key)+len(value) > 4*len(s)+8 || !strings.Contains(key, ".") {
				t.Fatalf("%q: %q=%q", s, key, value)
			}
		}
	})
}

// Configuration that would keep who reads it is an error, and not waited for.
func TestFollowDoesNotWait(t *testing.T) {
	top := layOut(t, txtar.Parse([]byte("-- ws/.git/HEAD --\n")))
	if err := syscall.Mkfifo(top+"/ws/.git/config", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Rules{Writable: []string{top + "/ws"}}).Follow(top + "/ws"); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
}
