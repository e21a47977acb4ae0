package daemon

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sys/look"
)

// maxAdmitted bounds the lists of repositories that are admitted; the rest is forgotten,
// and asked for again.
const maxAdmitted = 256

// An admitted list is one that a person wants servers to be started from, as it was
// when they were shown it.
type admittedList struct {
	File string `json:"file"` // real path
	Sum  string `json:"sum"`  // SHA-256, in hex
}

func checkSum(file, sum string) error {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return fmt.Errorf("%q is no SHA-256", sum)
	}
	if !filepath.IsAbs(file) || len(file) > maxListPath {
		return fmt.Errorf("%q is no absolute path", file)
	}
	return nil
}

// check returns an error if servers would be started from a list that came with a
// repository, or that lies in the workspace, where an agent may have written it, and that
// nobody has admitted as it is. sums go with files; "" is no workspace.
func (l *lists) check(workspace string, files, sums []string) error {
	for i, file := range files {
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			real = file // there is none: checked below by its name
		}
		whose := "belongs to a repository"
		switch {
		case ofRepository(file) || ofRepository(real):
		case l.inWorkspace(workspace, real):
			whose = "lies in the workspace"
		default:
			continue
		}
		if len(sums) != len(files) || !l.admits(real, sums[i]) {
			return fmt.Errorf("%s %s, and nobody has agreed that its servers may be started as they are in it now; look at it, and agree with `ringfence mcp trust %s`", file, whose, file)
		}
	}
	return nil
}

// inWorkspace reports whether a list is beneath the workspace. What is in our home no agent
// writes, wherever that is.
func (l *lists) inWorkspace(workspace, real string) bool {
	if workspace == "" {
		return false
	}
	if to, err := filepath.EvalSymlinks(workspace); err == nil {
		workspace = to
	}
	beneath := func(dir string) bool { return strings.HasPrefix(real, strings.TrimSuffix(dir, "/")+"/") }
	return beneath(workspace) && !beneath(filepath.Dir(l.path))
}

func (l *lists) admits(real, sum string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.file.Admitted, admittedList{real, sum})
}

// admit remembers a list as it is now; what it was before is not admitted any more.
func (l *lists) admit(file, sum string) error {
	real, err := filepath.EvalSymlinks(file)
	if errors.Is(err, os.ErrNotExist) { // it is about to be written
		if real, err = filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
			real = filepath.Join(real, filepath.Base(file))
		}
	}
	if err != nil {
		return fmt.Errorf("admitting a list of servers: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.file
	next.Admitted = slices.DeleteFunc(slices.Clone(next.Admitted), func(a admittedList) bool { return a.File == real })
	next.Admitted = append(next.Admitted, admittedList{real, sum})
	next.Admitted = next.Admitted[max(0, len(next.Admitted)-maxAdmitted):]
	return l.put(next)
}

// ofRepository reports whether file is one that a repository brings along: it is called
// as clients call those, it lies in a work tree or in a repository, or it may be such a
// file under another name. What is no file at all counts as one, too.
func ofRepository(file string) bool {
	dir, name := strings.ToLower(filepath.Base(filepath.Dir(file))), strings.ToLower(filepath.Base(file))
	if name == ".mcp.json" || name == ".mcp.jsonc" || name == "mcp.json" && slices.Contains([]string{".cursor", ".vscode", ".claude", ".codex", ".gemini"}, dir) {
		return true
	}
	// A second name may be a link to what a repository has.
	if info, err := look.Lstat(file); err == nil && (info.Mode.Type()&^fs.ModeSymlink != 0 || info.Links > 1) {
		return true
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if repository(dir) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// repository reports whether dir is a work tree, or a repository without one. What cannot
// be looked at may be.
func repository(dir string) bool {
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	return there(".git") || there(".hg") || there(".svn") || there(".jj") || there("HEAD") && there("objects") && there("refs")
}

// CheckList returns an error if servers of the list file, whose content has the SHA-256
// sum, must not be started from it: what a session is refused for. It needs no engine.
func CheckList(home, file, sum string) error {
	l, err := openLists(Lists(home))
	if err != nil {
		return err
	}
	return l.check("", []string{file}, []string{sum})
}
