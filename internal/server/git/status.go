package git

import (
	"context"
	"strconv"
	"strings"
)

// noSubmodules keeps git from starting itself in submodules to see whether they are
// dirty.
const noSubmodules = "--ignore-submodules=dirty"

// changes are the files of one side of a status, by what happened to them. Groups
// without files are absent.
type changes struct {
	Added    []string `json:"added,omitempty"`
	Modified []string `json:"modified,omitempty"`
	Deleted  []string `json:"deleted,omitempty"`
	Renamed  []string `json:"renamed,omitempty"`
	Copied   []string `json:"copied,omitempty"`
}

func (c *changes) add(letter byte, path, from string) {
	switch letter {
	case 'A':
		c.Added = append(c.Added, path)
	case 'M', 'T':
		c.Modified = append(c.Modified, path)
	case 'D':
		c.Deleted = append(c.Deleted, path)
	case 'R':
		c.Renamed = append(c.Renamed, from+" -> "+path)
	case 'C':
		c.Copied = append(c.Copied, from+" -> "+path)
	}
}

func (c *changes) files() []string {
	all := []string{}
	for _, g := range [][]string{c.Added, c.Modified, c.Deleted, c.Renamed, c.Copied} {
		all = append(all, g...)
	}
	return all
}

// A state is what git status says.
type state struct {
	Success   bool     `json:"success"`
	Branch    *string  `json:"currentBranch"` // null when HEAD is detached
	Upstream  string   `json:"upstream,omitempty"`
	Ahead     *int     `json:"ahead,omitempty"`
	Behind    *int     `json:"behind,omitempty"`
	Clean     bool     `json:"isClean"`
	Staged    changes  `json:"stagedChanges"`
	Unstaged  changes  `json:"unstagedChanges"`
	Untracked []string `json:"untrackedFiles"`
	Conflicts []string `json:"conflictedFiles"`
}

// A brief is the same in the form that git_add and git_commit return.
type brief struct {
	Branch    *string  `json:"current_branch"`
	Staged    changes  `json:"staged_changes"`
	Unstaged  changes  `json:"unstaged_changes"`
	Untracked []string `json:"untracked_files"`
	Conflicts []string `json:"conflicted_files"`
	Clean     bool     `json:"is_clean"`
}

func (s state) brief() brief {
	return brief{s.Branch, s.Staged, s.Unstaged, s.Untracked, s.Conflicts, s.Clean}
}

type statusArgs struct {
	Path             string `json:"path"`
	IncludeUntracked *bool  `json:"includeUntracked"`
}

func (s *server) status(ctx context.Context, in statusArgs) (state, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return state{}, err
	}
	return r.state(ctx, in.IncludeUntracked == nil || *in.IncludeUntracked)
}

func (r *repo) state(ctx context.Context, untracked bool) (state, error) {
	files := "--untracked-files=no"
	if untracked {
		files = "--untracked-files=normal"
	}
	items, err := r.list(ctx, "status", "--porcelain=v2", "-z", "--branch", "--find-renames", noSubmodules, files)
	if err != nil {
		return state{}, err
	}
	return parseStatus(items), nil
}

// parseStatus reads git-status(1), "Porcelain Format Version 2". Lines that it does
// not know are passed over, as that format asks.
func parseStatus(items []string) state {
	st := state{Success: true, Untracked: []string{}, Conflicts: []string{}}
	for i := 0; i < len(items); i++ {
		kind, rest, _ := strings.Cut(items[i], " ")
		switch kind {
		case "#":
			st.header(rest)
		case "1", "2":
			n := 8 // fields, the path is the last
			if kind == "2" {
				n = 9
			}
			f := strings.SplitN(items[i], " ", n+1)
			from := ""
			if kind == "2" && i+1 < len(items) {
				i++
				from = items[i]
			}
			if len(f) == n+1 && len(f[1]) == 2 {
				st.Staged.add(f[1][0], f[n], from)
				st.Unstaged.add(f[1][1], f[n], from)
			}
		case "u":
			if f := strings.SplitN(items[i], " ", 11); len(f) == 11 {
				st.Conflicts = append(st.Conflicts, f[10])
			}
		case "?":
			st.Untracked = append(st.Untracked, rest)
		}
	}
	st.Clean = len(st.Staged.files())+len(st.Unstaged.files())+len(st.Untracked)+len(st.Conflicts) == 0
	return st
}

func (s *state) header(line string) {
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "branch.head":
		if value != "(detached)" {
			s.Branch = &value
		}
	case "branch.upstream":
		s.Upstream = value
	case "branch.ab":
		a, b, _ := strings.Cut(value, " ")
		ahead, err1 := strconv.Atoi(strings.TrimPrefix(a, "+"))
		behind, err2 := strconv.Atoi(strings.TrimPrefix(b, "-"))
		if err1 == nil && err2 == nil {
			s.Ahead, s.Behind = &ahead, &behind
		}
	}
}

// current returns the branch that HEAD is on, "" if it is on none.
func (r *repo) current(ctx context.Context) (string, error) {
	b, err := r.line(ctx, "symbolic-ref", "--quiet", "--short", "HEAD")
	if failedWith(err, 1) {
		return "", nil
	}
	return b, err
}

// commitID returns the hash that rev stands for, "" if it stands for none.
func (r *repo) commitID(ctx context.Context, rev string) (string, error) {
	h, err := r.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if failedWith(err, 1) {
		return "", nil
	}
	return h, err
}

// exists reports whether a ref points to something.
func (r *repo) exists(ctx context.Context, ref string) (bool, error) {
	_, err := r.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	if failedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// conflicts returns the files that are in conflict.
func (r *repo) conflicts(ctx context.Context) ([]string, error) {
	return r.list(ctx, "diff", "--no-ext-diff", "--no-textconv", noSubmodules, "--name-only", "--diff-filter=U", "-z")
}

// changed returns the files that differ between two commits; none if one is "".
func (r *repo) changed(ctx context.Context, from, to string) ([]string, error) {
	if from == "" || to == "" || from == to {
		return []string{}, nil
	}
	return r.list(ctx, "diff", "--no-ext-diff", "--no-textconv", noSubmodules, "--no-renames", "--name-only", "-z", "--end-of-options", from, to, "--")
}
