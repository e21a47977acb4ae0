package paths

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// grow makes files, and directories where a name ends with a slash; those of keys are keys.
func grow(t testing.TB, top string, names ...string) {
	t.Helper()
	for _, n := range names {
		p := filepath.Join(top, n)
		err := os.MkdirAll(filepath.Dir(p+"x"), 0o700)
		if strings.HasSuffix(n, "/") {
			err = os.MkdirAll(p, 0o700)
		} else if err == nil {
			err = os.WriteFile(p, []byte(keyHead+"ed25519 x"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A home that is not ours is found by its name or by its keys.
func TestForeignHomes(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	grow(t, top, "w/.ringfence/", "w/a/keys/policy.key", "w/b/keys/ledger.key", "w/c/keys/other.key", "w/ringfence-7/x/", "w/ringfence-x/",
		"w/own/keys/ledger.key", "away/keys/ledger.key", "w/src/", "w/d/keys/ledger.key/", "w/src/deep/.ringfence/")
	if err := errors.Join(os.Symlink(top+"/away", top+"/w/link"), os.Symlink("src", top+"/w/e"), os.Mkdir(top+"/w/f", 0o700),
		os.WriteFile(top+"/w/f/keys", nil, 0o600), os.WriteFile(top+"/w/c/keys/ledger.key", []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	own := []string{top + "/w/own"}
	got, err := ForeignHomes([]string{top + "/w", top + "/nowhere", top + "/w/own/keys"}, own)
	want := []string{top + "/away", top + "/w/.ringfence", top + "/w/a", top + "/w/b", top + "/w/ringfence-7"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for p, want := range map[string]string{
		"w/a": "w/a", "w/a/keys/policy.key": "w/a", "w/.ringfence/x/y": "w/.ringfence", "w/src/deep/.ringfence": "w/src/deep/.ringfence",
		"w/link/keys": "away", "w/src": "", "w/own/keys": "", "w/.ringfence": "w/.ringfence",
	} {
		_, err := ForeignHomes([]string{filepath.Join(top, p)}, own)
		if (want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrForeignHome) || !strings.Contains(err.Error(), filepath.Join(top, want)+":")) {
			t.Errorf("%s: %v, want %q", p, err, want)
		}
	}
}

// Nothing is remembered: a home is found as soon as it is one, above and at a place.
func TestHomeAppears(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	grow(t, top, "a/b/c/", "away/keys/ledger.key")
	deep := filepath.Join(top, "a/b/c/file")
	for _, want := range []string{"", "a/.ringfence/x", "a/b/keys/ledger.key", "a/b/c/keys/policy.key"} {
		home, p := "", deep
		if want != "" {
			grow(t, top, want)
			home = filepath.Dir(filepath.Dir(filepath.Join(top, want)))
		}
		if strings.Contains(want, DefaultName) {
			home = filepath.Join(top, "a", DefaultName)
			p = filepath.Join(home, "x")
		}
		if got := HomeAbove(p, nil); got != home {
			t.Errorf("with %q: %q, want %q", want, got, home)
		}
		if got := HomeAbove(p, []string{home}); home != "" && got == home {
			t.Errorf("%q is our own", got)
		}
	}
	for _, p := range []string{"", "/", "/no/such", "no\x00name"} {
		if got := HomeAbove(p, nil); got != "" {
			t.Errorf("%q: %q", p, got)
		}
	}
}

// For root, the home of every user is hidden in what is above them.
func TestForeignHomesOfUsers(t *testing.T) {
	for _, user := range userHomes() {
		home := filepath.Join(user, DefaultName)
		if fi, err := os.Lstat(home); err != nil || !fi.IsDir() {
			continue
		}
		got, err := ForeignHomes([]string{"/"}, nil)
		if err != nil || !slices.Contains(got, home) {
			t.Errorf("%q, %v, without %s", got, err, home)
		}
	}
	if len(userHomes()) == 0 {
		t.Error("no user has a home")
	}
}

// The sockets of engines are our own state wherever they lie.
func TestOwnStateHasSockets(t *testing.T) {
	run, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	home := filepath.Join(run, strings.Repeat("long/", 25))
	grow(t, home, "/")
	own := OwnState(home)
	socket, err := EngineSocket(home)
	if err != nil || strings.HasPrefix(socket, home) {
		t.Fatal(socket, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, own := range [][]string{own, OwnState(home)} { // the choice holds, whatever the environment is
		if !slices.Contains(own, filepath.Dir(socket)) && !slices.Contains(own, filepath.Dir(filepath.Dir(socket))) {
			t.Errorf("%q is without the directory of %s", own, socket)
		}
	}
}

func BenchmarkForeignHomes(b *testing.B) {
	top := b.TempDir()
	for n := range strings.FieldsSeq("src docs test internal cmd build .git .github node_modules examples") {
		grow(b, top, n+"/", n+".txt")
	}
	for b.Loop() {
		if _, err := ForeignHomes([]string{top}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
