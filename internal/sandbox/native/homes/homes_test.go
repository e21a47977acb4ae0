package homes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// grow makes directories, and keys of ringfence in those whose names end with "!".
func grow(t testing.TB, top string, names ...string) {
	t.Helper()
	for _, n := range names {
		dir, key := strings.CutSuffix(n, "!")
		dir = filepath.Join(top, dir)
		err := os.MkdirAll(dir, 0o700)
		if key {
			err = errors.Join(err, os.MkdirAll(dir+"/keys", 0o700), os.WriteFile(dir+"/keys/ledger.key", []byte("ringfence-key/v1 ed25519 x"), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func topOf(t testing.TB) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestFind(t *testing.T) {
	top := topOf(t)
	grow(t, top, "a/b/c/.ringfence", "a/b/other!", "a/no/keys", "a/.ringfence/in/.ringfence", "w/x/mine!", "w/node_modules/p/.ringfence",
		"w/hidden/deep/.ringfence", "away/deep!", "w/plain/.ringfenced", "w/in/tree/y/z!")
	if err := errors.Join(os.Symlink(top+"/away", top+"/w/link"), os.WriteFile(top+"/w/plain/.ringfence", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ trees, want string }{
		{"a", "a/.ringfence a/b/c/.ringfence a/b/other"},
		{"w", "w/in/tree/y/z"},
		{"w w/in/tree a/b/c", "a/b/c/.ringfence w/in/tree/y/z"},
		{"w/link", "away/deep"},
		{"nowhere", ""},
	} {
		var trees, want []string
		for n := range strings.FieldsSeq(c.trees) {
			trees = append(trees, filepath.Join(top, n))
		}
		for n := range strings.FieldsSeq(c.want) {
			want = append(want, filepath.Join(top, n))
		}
		got, cut, err := Find(append(trees, "/usr"), []string{top + "/w/x/mine"}, []string{top + "/w/hidden"})
		if err != nil || cut != "" || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %q, %v, want %q", c.trees, got, cut, err, want)
		}
	}
}

// What is near is found however much else there is, and it is said that not all was seen.
func TestBounds(t *testing.T) {
	top := topOf(t)
	for i := range maxDirectories + 10 {
		grow(t, top, fmt.Sprintf("many/%d", i))
	}
	deep := strings.Repeat("d/", maxLevels+1)
	grow(t, top, "many/7/.ringfence", "deep/"+deep+".ringfence")
	got, cut, err := Find([]string{top + "/many"}, nil, nil)
	if err != nil || cut == "" || len(got) > 1 {
		t.Errorf("%q, %q, %v", got, cut, err)
	}
	if got, cut, err := Find([]string{top + "/deep"}, nil, nil); err != nil || cut == "" || len(got) != 0 {
		t.Errorf("%q, %q, %v", got, cut, err)
	}
	for i := range maxFound + 1 {
		grow(t, top, fmt.Sprintf("full/%d/.ringfence", i))
	}
	if _, _, err := Find([]string{top + "/full"}, nil, nil); err == nil || !strings.Contains(err.Error(), "smaller tree") {
		t.Errorf("too many: %v", err)
	}
}

// Find of as many directories as are looked at.
func BenchmarkFind(b *testing.B) {
	top := topOf(b)
	for i := range maxDirectories - 100 {
		grow(b, top, fmt.Sprintf("%d/%d", i%60, i))
	}
	for b.Loop() {
		if _, cut, err := Find([]string{top}, nil, nil); err != nil || cut != "" {
			b.Fatal(cut, err)
		}
	}
}
