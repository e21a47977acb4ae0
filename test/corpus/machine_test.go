package corpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine is the folders of one case: workspace, home, and our own home.
type machine struct {
	t           *testing.T
	work, home  string
	own         string
	replacement *strings.Replacer
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, work: root + "/w", home: root + "/h", own: root + "/r"}
	for _, d := range []string{m.work, m.home, m.own} {
		m.must(os.Mkdir(d, 0o700))
	}
	m.bind()
	return m
}

func (m *machine) bind() {
	m.replacement = strings.NewReplacer("$HOME", "$HOME", "$W", m.work, "$H", m.home, "$R", m.own)
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// do runs an operation on the folders and reports whether it knows it.
func (m *machine) do(op, body string) bool {
	m.t.Helper()
	verb, rest, _ := strings.Cut(m.replacement.Replace(op), " ")
	switch verb {
	case "file":
		name, content, _ := strings.Cut(rest, " ")
		m.must(os.MkdirAll(filepath.Dir(name), 0o700))
		m.must(os.WriteFile(name, []byte(content+"\n"), 0o600))
	case "dir":
		m.must(os.MkdirAll(rest, 0o700))
	case "link", "hardlink":
		name, target, _ := strings.Cut(rest, " -> ")
		m.must(os.MkdirAll(filepath.Dir(name), 0o700))
		m.must(os.RemoveAll(name))
		if verb == "link" {
			m.must(os.Symlink(target, name))
		} else {
			m.must(os.Link(target, name))
		}
	case "git":
		m.must(os.MkdirAll(rest+"/.git/objects", 0o700))
		m.must(os.MkdirAll(rest+"/.git/refs/heads", 0o700))
		m.must(os.WriteFile(rest+"/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o600))
		m.must(os.WriteFile(rest+"/.git/config", []byte("[core]\n\trepositoryformatversion = 0\n"), 0o600))
	case "config":
		f, err := os.OpenFile(rest+"/.git/config", os.O_APPEND|os.O_WRONLY, 0)
		m.must(err)
		_, err = f.WriteString(m.replacement.Replace(body))
		m.must(err)
		m.must(f.Close())
	case "workspace":
		m.work = rest
		m.must(os.MkdirAll(rest, 0o700))
		m.bind()
	default:
		return false
	}
	return true
}
