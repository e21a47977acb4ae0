//go:build unix

package filesystem

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const secret = "SECRET-BYTES"

// flip replaces what stands at name by what other holds, and back, until stop.
func flip(t *testing.T, name, other string, stop <-chan struct{}) {
	spare := name + ".spare"
	for {
		select {
		case <-stop:
			return
		default:
		}
		for _, step := range [][2]string{{name, spare}, {other, name}, {name, other}, {spare, name}} {
			err := os.Rename(step[0], step[1])
			// A call may have made a directory in the moment when there was none.
			for tries := 0; err != nil && tries < 100; tries++ {
				os.RemoveAll(step[1])
				err = os.Rename(step[0], step[1])
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// race runs each of attempts over and over while name flips, and returns how often
// one succeeded: a race that is never won by the honest side tests nothing.
func race(t *testing.T, name, other string, attempts ...func() (string, error)) {
	t.Helper()
	stop := make(chan struct{})
	var flipping sync.WaitGroup
	flipping.Go(func() { flip(t, name, other, stop) })
	defer flipping.Wait()
	defer close(stop)
	good, bad := 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end) || good == 0 || bad == 0; {
		for _, try := range attempts {
			out, err := try()
			if strings.Contains(out, secret) || err != nil && strings.Contains(err.Error(), secret) {
				t.Fatalf("the secret came out: %q, %v", out, err)
			}
			if err == nil {
				good++
			} else {
				bad++
			}
		}
		if time.Since(end) > 20*time.Second {
			t.Fatalf("%d good and %d refused: the race never happened", good, bad)
		}
	}
	t.Logf("%d went well, %d were refused", good, bad)
}

type arena struct {
	*server
	ws, outside string
}

func newArena(t *testing.T) arena {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := arena{ws: filepath.Join(top, "ws"), outside: filepath.Join(top, "outside")}
	for _, d := range []string{a.ws, a.outside, a.ws + "/d"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a.file(t, a.outside+"/key", secret)
	a.file(t, a.outside+"/"+secret, "")
	a.file(t, a.ws+"/d/key", "public")
	a.file(t, a.ws+"/x", "public")
	if a.server, err = open(Options{Roots: []string{a.ws}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	t.Cleanup(func() {
		if b, _ := os.ReadFile(a.outside + "/key"); string(b) != secret {
			t.Errorf("the secret is now %q", b)
		}
		if l, _ := os.ReadDir(a.outside); len(l) != 2 {
			t.Errorf("outside are now %v", l)
		}
	})
	return a
}

func (a arena) file(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (a arena) link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// text turns a handler's result into a text.
func text(res *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return res.Content[0].(*mcp.TextContent).Text, nil
}

// FS-03: the last component flips between a file and a link to a secret.
func TestFS03FileSwap(t *testing.T) {
	a := newArena(t)
	a.link(t, a.outside+"/key", a.ws+"/link")
	x := a.ws + "/x"
	race(t, x, a.ws+"/link",
		func() (string, error) { return text(a.readText(t.Context(), readArgs{Path: x})) },
		func() (string, error) {
			s, err := text(a.readMultiple(t.Context(), pathsArgs{[]string{x}}))
			if strings.Contains(s, "Error - ") {
				err = fmt.Errorf("%s", s)
			}
			return s, err
		},
		func() (string, error) {
			res, err := a.readMedia(t.Context(), pathArgs{x})
			if err != nil {
				return "", err
			}
			return string(res.Content[0].(*mcp.EmbeddedResource).Resource.Blob), nil
		},
		func() (string, error) {
			old, repl := "u", "u"
			return text(a.editFile(t.Context(), editArgs{Path: x, Edits: []edit{{&old, &repl}}, DryRun: true}))
		})
}

// FS-05: the directory above flips between itself and a link to one outside. What
// is written, made, moved and deleted lands inside or nowhere.
func TestFS05DirectorySwap(t *testing.T) {
	a := newArena(t)
	a.link(t, a.outside, a.ws+"/link")
	d := a.ws + "/d"
	content := "fresh"
	n := 0
	race(t, d, a.ws+"/link",
		func() (string, error) { return text(a.readText(t.Context(), readArgs{Path: d + "/key"})) },
		func() (string, error) { return text(a.listDirectory(t.Context(), pathArgs{d})) },
		func() (string, error) {
			return text(a.searchFiles(t.Context(), searchArgs{Path: d, Pattern: "**"}))
		},
		func() (string, error) {
			return text(a.directoryTree(t.Context(), treeArgs{Path: d}))
		},
		func() (string, error) {
			return text(a.writeFile(t.Context(), writeArgs{Path: d + "/key", Content: &content}))
		},
		func() (string, error) {
			n++
			return text(a.writeFile(t.Context(), writeArgs{Path: fmt.Sprintf("%s/new%d", d, n), Content: &content}))
		},
		func() (string, error) {
			return text(a.deleteFile(t.Context(), pathArgs{fmt.Sprintf("%s/new%d", d, n)}))
		},
		func() (string, error) { return text(a.deleteFile(t.Context(), pathArgs{d + "/" + secret[:6]})) },
		func() (string, error) {
			return text(a.createDirectory(t.Context(), pathArgs{fmt.Sprintf("%s/dir%d", d, n)}))
		},
		func() (string, error) {
			return text(a.moveFile(t.Context(), moveArgs{Source: d + "/key", Destination: a.ws + "/stolen"}))
		},
		func() (string, error) {
			return text(a.moveFile(t.Context(), moveArgs{Source: a.ws + "/stolen", Destination: d + "/key"}))
		},
	)
}

// Cases of a single call that must fail. %W is the workspace, %O what is outside.
func TestHostilePaths(t *testing.T) {
	a := newArena(t)
	a.link(t, a.outside+"/key", a.ws+"/abs")
	a.link(t, "../outside/key", a.ws+"/rel")
	a.link(t, "loop2", a.ws+"/loop1")
	a.link(t, "loop1", a.ws+"/loop2")
	a.link(t, "/proc/self/root"+a.outside+"/key", a.ws+"/proc")
	a.link(t, "/proc/self/fd/0", a.ws+"/fd")
	a.link(t, a.outside, a.ws+"/dir")
	if err := syscall.Mkfifo(a.ws+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	eachJSON(t, "testdata/attacks.jsonl", func(line int, b []byte) {
		var c struct {
			ID, Tool, Want string
			Args           json.RawMessage
		}
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		s := strings.NewReplacer("%W", a.ws, "%O", a.outside, "%LONG", strings.Repeat("a/", 2100), "%DEEP", strings.Repeat("a/", 300))
		cl := connect(t, a.ws)
		got, failed := call(t, cl, c.Tool, json.RawMessage(s.Replace(string(c.Args))))
		if !failed || !strings.Contains(got, c.Want) || strings.Contains(got, secret) {
			t.Errorf("line %d: %s %s: error %v, %q, want %q", line, c.ID, c.Tool, failed, got, c.Want)
		}
	})
}

// FS-10: a file that has another name outside is replaced, not written through.
func TestFS10Hardlink(t *testing.T) {
	a := newArena(t)
	if err := os.Link(a.outside+"/key", a.ws+"/hard"); err != nil {
		t.Fatal(err)
	}
	content := "mine"
	if _, err := a.writeFile(t.Context(), writeArgs{a.ws + "/hard", &content}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(a.ws + "/hard"); string(b) != content {
		t.Errorf("%q", b)
	}
}

// FS2: a replaced file keeps its permissions and owner, loses set-id bits, and
// nothing else is left in its directory.
func TestWriteKeepsMode(t *testing.T) {
	a := newArena(t)
	name := a.ws + "/d/key"
	if err := os.Chmod(name, 0o741|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	root := os.Getuid() == 0
	if root {
		if err := os.Chown(name, 1234, 4321); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o741|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
	}
	old, repl := "public", "changed"
	if _, err := a.editFile(t.Context(), editArgs{Path: name, Edits: []edit{{&old, &repl}}}); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode() != 0o741 {
		t.Errorf("mode %v", fi.Mode())
	}
	if st := fi.Sys().(*syscall.Stat_t); root && (st.Uid != 1234 || st.Gid != 4321) {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	if l, _ := os.ReadDir(a.ws + "/d"); len(l) != 1 {
		t.Errorf("left behind: %v", l)
	}
}

// FS5 and FS2: concurrent edits of one file all arrive; concurrent creation of one
// file succeeds in full or fails.
func TestConcurrentWrites(t *testing.T) {
	a := newArena(t)
	const n = 20
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("line-%02d", i))
	}
	a.file(t, a.ws+"/many", strings.Join(lines, "\n"))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			old, repl := lines[i], strings.ToUpper(lines[i])
			if _, err := a.editFile(t.Context(), editArgs{Path: a.ws + "/many", Edits: []edit{{&old, &repl}}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b, _ := os.ReadFile(a.ws + "/many"); string(b) != strings.ToUpper(strings.Join(lines, "\n")) {
		t.Errorf("%s", b)
	}
}

// FS4.
func TestBounds(t *testing.T) {
	a := newArena(t)
	big := strings.Repeat("0123456789abcde\n", maxText/16) + "last\n"
	a.file(t, a.ws+"/big", big)
	if _, err := a.readText(t.Context(), readArgs{Path: a.ws + "/big"}); err == nil || !strings.Contains(err.Error(), "head or tail") {
		t.Errorf("too large a file: %v", err)
	}
	two := 2.0
	if s, err := text(a.readText(t.Context(), readArgs{Path: a.ws + "/big", Tail: &two})); s != "0123456789abcde\nlast" {
		t.Errorf("tail: %q, %v", s, err)
	}
	all := 1e6
	if _, err := a.readText(t.Context(), readArgs{Path: a.ws + "/big", Head: &all}); err == nil {
		t.Error("a head of everything is read")
	}
	deep := a.ws
	for range maxDepth + 10 {
		deep += "/n"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	res, err := a.searchFiles(t.Context(), searchArgs{Path: a.ws, Pattern: "**/n"})
	if err != nil || len(res.Content) != 2 || !strings.Contains(res.Content[1].(*mcp.TextContent).Text, "Cut short") {
		t.Errorf("a deep tree: %v, %v", res, err)
	}
	a.file(t, a.ws+"/bin", "a\x00b")
	if _, err := a.readText(t.Context(), readArgs{Path: a.ws + "/bin"}); err == nil || !strings.Contains(err.Error(), "read_media_file") {
		t.Errorf("binary: %v", err)
	}
	blank, none := strings.Repeat("\n", 20000)+"x", "y"
	a.file(t, a.ws+"/lines", strings.Repeat("\n", 40000))
	if _, err := a.editFile(t.Context(), editArgs{Path: a.ws + "/lines", Edits: []edit{{&blank, &none}}}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a quadratic edit: %v", err)
	}
}

// Line ends of a file survive an edit that is written with others.
func TestEditKeepsLineEnds(t *testing.T) {
	a := newArena(t)
	a.file(t, a.ws+"/dos", "one\r\ntwo\r\n")
	old, repl := "one\ntwo", "1\n2"
	if _, err := a.editFile(t.Context(), editArgs{Path: a.ws + "/dos", Edits: []edit{{&old, &repl}}}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(a.ws + "/dos"); string(b) != "1\r\n2\r\n" {
		t.Errorf("%q", b)
	}
	a.file(t, a.ws+"/latin", "caf\xe9 one")
	if _, err := a.editFile(t.Context(), editArgs{Path: a.ws + "/latin", Edits: []edit{{&old, &repl}}}); err == nil {
		t.Error("a file that is not UTF-8 is edited")
	}
}

// Roots can lead into each other, and files move between them.
func TestTwoRoots(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var roots []string
	for _, n := range []string{"a", "b"} {
		roots = append(roots, filepath.Join(top, n))
		if err := os.Mkdir(roots[len(roots)-1], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(roots[0]+"/f", []byte("content"), 0o640), os.Symlink(roots[1], roots[0]+"/b")); err != nil {
		t.Fatal(err)
	}
	c := connect(t, roots...)
	if got, failed := call(t, c, "move_file", map[string]string{"source": "f", "destination": roots[0] + "/b/g"}); failed {
		t.Fatal(got)
	}
	if got, failed := call(t, c, "read_text_file", map[string]string{"path": roots[1] + "/g"}); failed || got != "content" {
		t.Error(got)
	}
	if got, failed := call(t, c, "delete_file", map[string]string{"path": roots[0] + "/b"}); failed {
		t.Error(got)
	}
	if _, err := os.Stat(roots[1] + "/g"); err != nil {
		t.Error("deleting a link deleted what it points to")
	}
}
