package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

type branchArgs struct {
	Path          string          `json:"path"`
	Mode          string          `json:"mode"`
	BranchName    string          `json:"branchName"`
	NewBranchName string          `json:"newBranchName"`
	StartPoint    string          `json:"startPoint"`
	Force         bool            `json:"force"`
	All           bool            `json:"all"`
	Remote        bool            `json:"remote"`
	Merged        json.RawMessage `json:"merged"`
	NoMerged      json.RawMessage `json:"noMerged"`
	Limit         *int            `json:"limit"`
}

type branchEntry struct {
	Name     string `json:"name"`
	Current  bool   `json:"current"`
	Hash     string `json:"commitHash"`
	Upstream string `json:"upstream,omitempty"`
	Ahead    int    `json:"ahead"`
	Behind   int    `json:"behind"`
}

type branchResult struct {
	Success  bool           `json:"success"`
	Mode     string         `json:"mode"`
	Branches *[]branchEntry `json:"branches,omitempty"`
	Current  string         `json:"currentBranch,omitempty"`
	Message  string         `json:"message,omitempty"`
}

func (s *server) branch(ctx context.Context, in branchArgs) (branchResult, error) {
	mode, err := oneOf("mode", in.Mode, "list", "create", "delete", "rename", "show-current")
	if err != nil {
		return branchResult{}, err
	}
	out := branchResult{Success: true, Mode: mode}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	switch mode {
	case "list":
		return out, r.branches(ctx, in, &out)
	case "show-current":
		if out.Current, err = r.current(ctx); err != nil {
			return out, err
		}
		out.Message = "Current branch: " + out.Current
		if out.Current == "" {
			out.Message = "HEAD is detached"
		}
		return out, nil
	}
	args, done, err := in.change(mode)
	if err != nil {
		return out, err
	}
	out.Message = done
	_, err = r.run(ctx, writes, args...)
	return out, err
}

// change returns the command of a mode that changes branches, and what to say of it.
func (in branchArgs) change(mode string) (args []string, done string, err error) {
	name, err := branchName("branchName", in.BranchName, heads)
	if err != nil {
		return nil, "", err
	}
	switch mode {
	case "create":
		if err := option("startPoint", in.StartPoint); err != nil {
			return nil, "", err
		}
		args = append(append([]string{"branch"}, when(in.Force, "--force")...), "--end-of-options", name)
		return append(args, when(in.StartPoint != "", in.StartPoint)...), fmt.Sprintf("Branch '%s' created successfully.", name), nil
	case "delete":
		args = append([]string{"branch", "--delete"}, when(in.Force, "--force")...)
		return append(args, "--end-of-options", name), fmt.Sprintf("Branch '%s' deleted successfully.", name), nil
	}
	fresh, err := branchName("newBranchName", in.NewBranchName, heads)
	if err != nil {
		return nil, "", err
	}
	args = append([]string{"branch", "--move"}, when(in.Force, "--force")...)
	return append(args, "--end-of-options", name, fresh), fmt.Sprintf("Branch '%s' renamed to '%s'.", name, fresh), nil
}

func (r *repo) branches(ctx context.Context, in branchArgs, out *branchResult) error {
	limit, err := between("limit", in.Limit, 1000, 1, 1000)
	if err != nil {
		return err
	}
	args := []string{
		"for-each-ref", fmt.Sprintf("--count=%d", limit),
		"--format=%(HEAD)%00%(refname:short)%00%(objectname)%00%(upstream:short)%00%(upstream:track,nobracket)%00%(symref)%00",
	}
	for _, f := range []struct {
		name, option string
		value        json.RawMessage
	}{{"merged", "--merged=", in.Merged}, {"noMerged", "--no-merged=", in.NoMerged}} {
		rev, err := mergedInto(f.name, f.value)
		if err != nil {
			return err
		}
		args = append(args, when(rev != "", f.option+rev)...)
	}
	switch {
	case in.All:
		args = append(args, "refs/heads", "refs/remotes")
	case in.Remote:
		args = append(args, "refs/remotes")
	default:
		args = append(args, "refs/heads")
	}
	text, err := r.run(ctx, reads, args...)
	if err != nil {
		return err
	}
	list := []branchEntry{}
	f := strings.Split(strings.ToValidUTF8(text, "\uFFFD"), "\x00")
	for ; len(f) > 6; f = f[6:] {
		if f[5] != "" {
			continue // origin/HEAD only stands for another
		}
		b := branchEntry{Current: strings.TrimLeft(f[0], "\n") == "*", Name: f[1], Hash: f[2], Upstream: f[3]}
		b.Ahead, b.Behind = track(f[4])
		if b.Current {
			out.Current = b.Name
		}
		list = append(list, b)
	}
	out.Branches = &list
	return nil
}

// mergedInto reads an argument that is true, for HEAD, or a revision.
func mergedInto(name string, v json.RawMessage) (string, error) {
	switch string(v) {
	case "", "null", "false":
		return "", nil
	case "true":
		return "HEAD", nil
	}
	var rev string
	if err := json.Unmarshal(v, &rev); err != nil {
		return "", fmt.Errorf("%s must be true, false or a revision", name)
	}
	return rev, word(name, rev)
}

// track reads "ahead 1, behind 2".
func track(s string) (ahead, behind int) {
	for part := range strings.SplitSeq(s, ", ") {
		word, num, _ := strings.Cut(part, " ")
		n, err := strconv.Atoi(num)
		switch {
		case err != nil: // "gone", or nothing
		case word == "ahead":
			ahead = n
		case word == "behind":
			behind = n
		}
	}
	return ahead, behind
}

type tagArgs struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	TagName   string `json:"tagName"`
	Commit    string `json:"commit"`
	Message   string `json:"message"`
	Annotated bool   `json:"annotated"`
	Force     bool   `json:"force"`
	Limit     *int   `json:"limit"`
}

type tagEntry struct {
	Name    string `json:"name"`
	Commit  string `json:"commit"`
	Message string `json:"message,omitempty"`
	Body    string `json:"annotationBody,omitempty"`
	Tagger  string `json:"tagger,omitempty"`
	Time    int64  `json:"timestamp,omitempty"`
}

type tagResult struct {
	Success  bool        `json:"success"`
	Mode     string      `json:"mode"`
	Tags     *[]tagEntry `json:"tags,omitempty"`
	Created  string      `json:"created,omitempty"`
	Deleted  string      `json:"deleted,omitempty"`
	Signed   *bool       `json:"signed,omitempty"`
	Tag      string      `json:"verifiedTag,omitempty"`
	Verified *bool       `json:"verified,omitempty"`
	Warning  string      `json:"warning,omitempty"`
}

func (s *server) tag(ctx context.Context, in tagArgs) (tagResult, error) {
	mode, err := oneOf("mode", in.Mode, "list", "create", "delete", "verify")
	if err != nil {
		return tagResult{}, err
	}
	out := tagResult{Success: true, Mode: mode}
	limit, err := between("limit", in.Limit, 1000, 1, 1000)
	if err != nil {
		return out, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	if mode == "list" {
		list, err := r.tagList(ctx, limit)
		out.Tags = &list
		return out, err
	}
	name, err := branchName("tagName", in.TagName, tags)
	if err != nil {
		return out, err
	}
	no := false
	switch mode {
	case "create":
		out.Created, out.Signed = name, &no
		return out, r.createTag(ctx, name, in)
	case "delete":
		out.Deleted = name
		_, err = r.run(ctx, writes, "tag", "--delete", "--end-of-options", name)
		return out, err
	}
	if h, err := r.commitID(ctx, tags+name); err != nil || h == "" {
		return out, errors.Join(fmt.Errorf("tag not found: %s", name), err)
	}
	out.Tag, out.Verified = name, &no
	out.Warning = "Signatures are not verified here: that would run a program with access to keys."
	return out, nil
}

func (r *repo) createTag(ctx context.Context, name string, in tagArgs) error {
	if err := option("commit", in.Commit); err != nil {
		return err
	}
	text := message(in.Message)
	if len(text) > 100_000 || strings.IndexByte(text, 0) >= 0 {
		return errors.New("message is too long or holds a NUL")
	}
	if text == "" && in.Annotated {
		text = "Tag " + name
	}
	args := append([]string{"tag", "--no-sign"}, when(in.Force, "--force")...)
	args = append(args, when(text != "", "--annotate", "--file=-", "--cleanup=whitespace")...)
	args = append(args, "--end-of-options", name)
	args = append(args, when(in.Commit != "", in.Commit)...)
	res, err := r.exec(ctx, writes, text, args...)
	if err != nil {
		return fmt.Errorf("running git tag: %w", err)
	}
	if res.Code != 0 {
		return &failure{"tag", res}
	}
	return nil
}

// tagList returns tags, the newest first.
func (r *repo) tagList(ctx context.Context, limit int) ([]tagEntry, error) {
	text, err := r.run(ctx, reads, "for-each-ref", fmt.Sprintf("--count=%d", limit), "--sort=-creatordate",
		"--format=%(refname:lstrip=2)%00%(objectname:short)%00%(*objectname:short)%00%(objecttype)%00%(contents:subject)%00%(contents:body)%00%(taggername)%00%(taggeremail)%00%(creatordate:unix)%00",
		"refs/tags")
	if err != nil {
		return nil, err
	}
	list := []tagEntry{}
	f := strings.Split(strings.ToValidUTF8(text, "\uFFFD"), "\x00")
	for ; len(f) > 9; f = f[9:] {
		t := tagEntry{Name: strings.TrimLeft(f[0], "\n"), Commit: f[1]}
		t.Time, _ = strconv.ParseInt(f[8], 10, 64) // a number, or nothing for odd objects
		if f[3] == "tag" {
			t.Commit, t.Message, t.Body = f[2], f[4], strings.TrimSpace(f[5])
			t.Tagger = strings.TrimSpace(f[6] + " " + f[7])
		}
		list = append(list, t)
	}
	return list, nil
}

type worktreeArgs struct {
	Path         string `json:"path"`
	Mode         string `json:"mode"`
	WorktreePath string `json:"worktreePath"`
	Branch       string `json:"branch"`
	Commitish    string `json:"commitish"`
	Force        bool   `json:"force"`
	NewPath      string `json:"newPath"`
	Detach       bool   `json:"detach"`
	Verbose      bool   `json:"verbose"`
	DryRun       bool   `json:"dryRun"`
}

type worktreeEntry struct {
	Path     string `json:"path"`
	Head     string `json:"head"`
	Branch   string `json:"branch,omitempty"`
	Bare     bool   `json:"bare"`
	Detached bool   `json:"detached"`
	Locked   bool   `json:"locked"`
	Prunable bool   `json:"prunable"`
}

type moved struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type worktreeResult struct {
	Success   bool             `json:"success"`
	Mode      string           `json:"mode"`
	Worktrees *[]worktreeEntry `json:"worktrees,omitempty"`
	Added     string           `json:"added,omitempty"`
	Removed   string           `json:"removed,omitempty"`
	Moved     *moved           `json:"moved,omitempty"`
	Pruned    *[]string        `json:"pruned,omitempty"`
}

func (s *server) worktree(ctx context.Context, in worktreeArgs) (worktreeResult, error) {
	mode, err := oneOf("mode", in.Mode, "list", "add", "remove", "move", "prune")
	if err != nil {
		return worktreeResult{}, err
	}
	out := worktreeResult{Success: true, Mode: mode}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	switch mode {
	case "list":
		items, err := r.list(ctx, "worktree", "list", "--porcelain", "-z")
		list := parseWorktrees(items)
		out.Worktrees = &list
		return out, err
	case "prune":
		args := append([]string{"worktree", "prune", "--verbose"}, when(in.DryRun, "--dry-run")...)
		text, err := r.run(ctx, writes, args...)
		list := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' })
		out.Pruned = &list
		return out, err
	}
	at, err := r.treePath("worktreePath", in.WorktreePath)
	if err != nil {
		return out, err
	}
	var args []string
	switch mode {
	case "add":
		out.Added = at
		args, err = in.addTree(at)
	case "remove":
		out.Removed = at
		args = append(append([]string{"worktree", "remove"}, when(in.Force, "--force")...), "--end-of-options", at)
	case "move":
		var to string
		to, err = r.treePath("newPath", in.NewPath)
		out.Moved = &moved{at, to}
		args = append(append([]string{"worktree", "move"}, when(in.Force, "--force")...), "--end-of-options", at, to)
	}
	if err != nil {
		return out, err
	}
	_, err = r.run(ctx, writes, args...)
	return out, err
}

// treePath returns the real path of a work tree, which starts at the directory that
// was named.
func (r *repo) treePath(arg, path string) (string, error) {
	if err := word(arg, path); err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	return r.s.fresh(path)
}

func (in worktreeArgs) addTree(at string) ([]string, error) {
	args := append([]string{"worktree", "add"}, when(in.Force, "--force")...)
	args = append(args, when(in.Detach, "--detach")...)
	if in.Branch != "" {
		name, err := branchName("branch", in.Branch, heads)
		if err != nil {
			return nil, err
		}
		args = append(args, "-b", name)
	}
	if err := option("commitish", in.Commitish); err != nil {
		return nil, err
	}
	args = append(args, "--end-of-options", at)
	return append(args, when(in.Commitish != "", strings.TrimPrefix(in.Commitish, heads))...), nil
}

// parseWorktrees reads git-worktree(1), "Porcelain Format", with -z: an empty item
// ends each record.
func parseWorktrees(items []string) []worktreeEntry {
	list := []worktreeEntry{}
	var cur worktreeEntry
	for _, item := range append(items, "") {
		key, value, _ := strings.Cut(item, " ")
		switch key {
		case "":
			if cur.Path != "" {
				list = append(list, cur)
			}
			cur = worktreeEntry{}
		case "worktree":
			cur.Path = value
		case "HEAD":
			cur.Head = value
		case "branch":
			cur.Branch = value
		case "bare":
			cur.Bare = true
		case "detached":
			cur.Detached = true
		case "locked":
			cur.Locked = true
		case "prunable":
			cur.Prunable = true
		}
	}
	return list
}
