package resolve

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestR5Bounds goes past each bound.
func TestR5Bounds(t *testing.T) {
	g := newGrove(t)
	long := strings.Repeat("a", 300)
	at := func(text string) error { _, err := g.view.place(text, g.view.Workspace); return err }
	line := func(text string) error { _, err := g.view.commandLine(text, g.view.Workspace); return err }
	call := func(kinds []act.Kind, n int) error {
		args := fmt.Sprintf(`{"p":["x"%s]}`, strings.Repeat(`,"y"`, n-1))
		ann := &policy.ToolAnnotation{
			Args:    map[string]policy.Arg{"/p/*": {Role: policy.RolePath, Effects: kinds, Real: true}},
			Effects: []policy.Implied{{Kind: act.Read, On: "/p/*"}},
		}
		_, err := g.view.Call(Call{Tool: "s.t", Args: []byte(args), Annotation: ann, Dir: g.view.Workspace})
		return err
	}
	ann := &policy.ToolAnnotation{Args: map[string]policy.Arg{"/c": {Role: policy.RoleCommand, Effects: []act.Kind{act.Execute}}, "/n": {Role: policy.RolePlain}}}
	words := func(n int) error {
		args := fmt.Sprintf(`{"c":["go"%s]}`, strings.Repeat(`,"y"`, n-1))
		_, err := g.view.Call(Call{Tool: "s.t", Args: []byte(args), Annotation: ann, Dir: g.view.Workspace})
		return err
	}
	leaves := func(n int) error {
		args := fmt.Sprintf(`{"n":[0%s]}`, strings.Repeat(`,1`, n-1))
		r, err := g.view.Call(Call{Tool: "s.t", Args: []byte(args), Annotation: ann, Dir: g.view.Workspace})
		if err == nil && len(r.Facts) > 0 {
			return fmt.Errorf("%d facts", len(r.Facts))
		}
		return err
	}
	deepCommands := &commands{view: g.view, dir: g.view.Workspace, nested: maxNested}
	bigConfig, fifo, links := g.root+"/big", g.root+"/fifo", g.root+"/w/long"
	err := errors.Join(os.WriteFile(bigConfig, make([]byte, maxConfig+1), 0o600), exec.Command("mkfifo", fifo).Run(),
		os.Symlink(strings.Repeat("./", 2000)+"a", links), os.WriteFile(g.root+"/w/e\u0301", nil, 0o600), os.WriteFile(g.root+"/w/\u00e9", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, many := parseGitConfig("[a]\n" + strings.Repeat("k\n", maxSettings+1))
	everyKind := []act.Kind{act.Read, act.List, act.Stat, act.Create, act.Overwrite, act.Append, act.Read, act.Read, act.Read}
	_, bigErr := readGitConfig(bigConfig)
	_, fifoErr := readGitConfig(fifo)
	_, noneErr := readGitConfig(g.root + "/w/a/b/c/d.txt/x")
	_, noAnnotation := g.view.Call(Call{Tool: "s.t"})
	_, relative := g.view.absolute("x", "")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a component", at(long), "more than 255 bytes"},
		{"a path", at(strings.Repeat("a/", 2100)), "longer than 4096 bytes"},
		{"a path of 300 components that are missing", at(strings.Repeat("a/", 300) + "x"), ""},
		{"a real path", at(strings.Repeat("b/", 2040) + strings.Repeat("c", 16)), "longer than 4096 bytes"},
		{"bytes that are no text", at("a\xff"), "not valid UTF-8"},
		{"a file URL of a long path", at("file:///" + strings.Repeat("a", 5000)), "longer than"},
		{"a link to much", at("long"), ""},
		{"twins", at("e\u0301"), ""},
		{"a line", line("go " + strings.Repeat("x", maxLine)), "longer than"},
		{"commands", line(strings.Repeat("go;", maxCommands+1)), "more than 256 commands"},
		{"nesting", deepCommands.inner("go"), "more than 8 deep"},
		{"values", call(nil, maxValues+1), "more than the 1024-th"},
		{"words", words(maxValues + 1), "more than the 1024-th"},
		{"leaves", leaves(maxLeaves + 1), "more than the 100000-th"},
		{"many leaves", leaves(maxDeepFacts + 1), ""},
		{"effects", call(everyKind, maxValues), "more than 8192 effects"},
		{"a configuration", bigErr, "larger than"},
		{"a pipe as configuration", fifoErr, "no regular file"},
		{"a configuration below a file", noneErr, "could not be read"},
		{"no annotation", noAnnotation, "has no annotation"},
		{"no base", relative, "what to is not known"},
		{"a message", valueError(errors.New("is odd"), "/p", long), "…\" is odd"},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, c.err, c.want)
		}
	}
	if many == 0 {
		t.Error("too many settings were read")
	}
}

// TestFS29Ambiguous: a name with two spellings on disk, neither of them the one
// that was given, is refused.
func TestFS29Ambiguous(t *testing.T) {
	g := newGrove(t)
	// Three spellings of one name: the marks in two orders, and composed.
	for _, name := range []string{"a\u0323\u0302", "\u1ea1\u0302"} {
		if err := os.WriteFile(g.view.Workspace+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := g.view.place("a\u0302\u0323", g.view.Workspace); err == nil || !strings.Contains(err.Error(), "look the same") {
		t.Errorf("got %q, %v", p.path, err)
	}
}

// TestLinear: hostile configuration takes no time.
func TestLinear(t *testing.T) {
	var b strings.Builder
	for i := range maxSettings / 2 {
		fmt.Fprintf(&b, "[url \"https://h%d/\"]\ninsteadOf = a:\n", i)
	}
	c, line := parseGitConfig(b.String())
	if line != 0 {
		t.Fatal(line)
	}
	start := time.Now()
	c.rewrite([]string{"a:x"}, nil, true)
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("rewriting one URL took %v", d)
	}
}
