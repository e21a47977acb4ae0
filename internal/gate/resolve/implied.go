package resolve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// gitChanges are what a program comes to that can change all files of a repository.
var gitChanges = []act.Kind{act.GitCommit, act.GitBranch, act.GitRewrite}

// Implied returns what effects come to besides, if a program is given the trees in
// them: it can list what it can read, and read and change the repositories there.
func Implied(effects []act.Effect) []act.Effect {
	var all []act.Effect
	add := func(k act.Kind, r act.Resource) {
		e := act.Effect{Kind: k, Resource: r, Tree: true, Implied: true}
		if !slices.ContainsFunc(all, func(o act.Effect) bool { return o.Kind == k && o.Resource.Text == r.Text }) {
			all = append(all, e)
		}
	}
	for _, e := range effects {
		if !e.Tree || e.Resource.Type != act.Path {
			continue
		}
		repo := act.Resource{Type: act.Repo, Text: "repo:" + e.Resource.Text}
		switch e.Kind {
		case act.Read:
			add(act.List, e.Resource)
			add(act.Stat, e.Resource)
			add(act.GitRead, repo)
		case act.Overwrite:
			for _, k := range gitChanges {
				add(k, repo)
			}
		default: // what creates or deletes comes with what overwrites
		}
	}
	return all
}

// Changes returns the effects of giving a box the trees, to read and to change.
func (v View) Changes(trees []string) ([]act.Effect, error) {
	return v.execPaths(slices.Clone(trees), true, false)
}

// RunsProgram reports whether effects are those of running a program.
func RunsProgram(effects []act.Effect) bool {
	return slices.ContainsFunc(effects, func(e act.Effect) bool { return e.Kind == act.Execute })
}

// A Repository is one that a program would find in a tree.
type Repository struct {
	Top    string   // its work tree, or itself if it is bare
	Places []string // where its history is: real directories
}

// Bounds of the search for repositories.
const (
	maxRepoDirs    = 20_000
	maxRepoEntries = 400_000
	maxRepos       = 1_000
)

// Repositories finds the repositories in the tree at the real directory root, and the one
// that root lies in the history of. The error says that there is too much to look
// through: then nothing may be said of what is there.
func (v View) Repositories(root string) ([]Repository, error) {
	for d := root; d != "/"; d = path.Dir(d) {
		if is, err := isGitDir(d); is || err != nil {
			return []Repository{{Top: d, Places: []string{d}}}, nil //nolint:nilerr // what looks like one is taken for one
		}
	}
	var found []Repository
	dirs, entries := []string{root}, 0
	for i := 0; i < len(dirs); i++ {
		names, err := subdirectories(dirs[i], maxRepoEntries-entries, &entries)
		if err == nil && len(dirs)+len(names) > maxRepoDirs || errors.Is(err, errTooMany) || len(found) > maxRepos {
			return nil, bad("give the box a smaller tree", "has more than %d directories, %d files or %d repositories, and not all can be looked through for repositories", maxRepoDirs, maxRepoEntries, maxRepos)
		}
		r := repositoryAt(dirs[i])
		if r.Places != nil {
			found = append(found, r)
		}
		for _, name := range names {
			if p := join(dirs[i], name); !slices.Contains(r.Places, p) {
				dirs = append(dirs, p)
			}
		}
	}
	return found, nil
}

// repositoryAt returns the repository whose work tree is d, or that is d; without places
// if there is none.
func repositoryAt(d string) Repository {
	r := Repository{Top: d}
	git := join(d, ".git")
	switch info, err := os.Lstat(git); {
	case err != nil:
		if is, err := isGitDir(d); is || err != nil {
			r.Places = []string{d}
		}
	case info.Mode().IsRegular():
		b, err := readBounded(git, maxPath+16)
		target, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), "gitdir: ")
		if err != nil || !ok {
			return r // git refuses it
		}
		r.add(target, d)
	default:
		r.add(git, d)
	}
	return r
}

// add adds the directory that text names, and the one that it shares with others.
func (r *Repository) add(text, dir string) {
	if !strings.HasPrefix(text, "/") {
		text = join(dir, text)
	}
	p, err := follow(text)
	if err != nil || !p.dir() {
		return
	}
	r.Places = append(r.Places, p.path)
	if b, err := readBounded(join(p.path, "commondir"), maxPath+16); err == nil && len(b) > 0 && len(r.Places) == 1 {
		r.add(strings.TrimRight(string(b), "\r\n"), p.path)
	}
}

var errTooMany = errors.New("too many entries")

// subdirectories lists the directories in dir, at most limit entries of any kind, and adds
// to seen how many there were. What may not be listed has none for a program either.
func subdirectories(dir string, limit int, seen *int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	var names []string
	for {
		entries, err := f.ReadDir(1024)
		if limit -= len(entries); limit < 0 {
			return nil, errTooMany
		}
		*seen += len(entries)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if errors.Is(err, io.EOF) || err != nil {
			slices.Sort(names)
			return names, nil
		}
	}
}

// Narrow returns r, the resolution of an [Exec], with hold and hide added to what its box
// holds and what is not there in it.
func (r Resolution) Narrow(hold, hide []string) (Resolution, error) {
	var e Exec
	if err := strictjson.Unmarshal(r.Bytes, &e); err != nil {
		return Resolution{}, err
	}
	e.Hold = slices.Concat(e.Hold, hold)
	e.Hide = slices.Concat(e.Hide, hide)
	slices.Sort(e.Hold)
	slices.Sort(e.Hide)
	e.Hold, e.Hide = slices.Compact(e.Hold), slices.Compact(e.Hide)
	text, err := e.encode()
	r.Bytes = text
	return r, err
}

// encode is e as JSON that people read.
func (e *Exec) encode() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encoding a command: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
