package git

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

type initArgs struct {
	Path          string `json:"path"`
	InitialBranch string `json:"initialBranch"`
	Bare          bool   `json:"bare"`
}

type initResult struct {
	Success bool   `json:"success"`
	Path    string `json:"path"`
	Branch  string `json:"initialBranch"`
	Bare    bool   `json:"isBare"`
}

func (s *server) initRepo(ctx context.Context, in initArgs) (initResult, error) {
	branch := "main"
	if in.InitialBranch != "" {
		var err error
		if branch, err = branchName("initialBranch", in.InitialBranch, heads); err != nil {
			return initResult{}, err
		}
	}
	if in.Path == "" {
		in.Path = "."
	}
	dir, err := s.fresh(in.Path)
	if err != nil {
		return initResult{}, err
	}
	out := initResult{true, dir, branch, in.Bare}
	for _, there := range []string{dir, dir + "/.git"} {
		if _, err := os.Lstat(there + "/HEAD"); err == nil {
			return out, fmt.Errorf("%s is a repository already", dir)
		}
	}
	if _, err := os.Lstat(dir + "/.git"); err == nil {
		return out, fmt.Errorf("%s/.git exists already", dir)
	}
	args := append([]string{"init", "--quiet", "--template=", "--initial-branch=" + branch}, when(in.Bare, "--bare")...)
	return out, s.outside(ctx, writes, dir, append(args, "--end-of-options", dir))
}

type setDirArgs struct {
	Path         string `json:"path"`
	Validate     *bool  `json:"validateGitRepo"`
	InitIfAbsent bool   `json:"initializeIfNotPresent"`
}

// A snapshot is where a repository stands.
type snapshot struct {
	Status  snapStatus    `json:"status"`
	Commits []snapCommit  `json:"recentCommits"`
	Tags    []snapTag     `json:"recentTags"`
	Remotes []remoteEntry `json:"remotes,omitempty"`
}

type snapStatus struct {
	Branch    *string  `json:"branch"`
	Clean     bool     `json:"isClean"`
	Staged    []string `json:"staged"`
	Unstaged  []string `json:"unstaged"`
	Untracked []string `json:"untracked"`
	Conflicts []string `json:"conflicts"`
	Upstream  string   `json:"upstream,omitempty"`
	Ahead     *int     `json:"ahead,omitempty"`
	Behind    *int     `json:"behind,omitempty"`
}

type snapCommit struct {
	Hash    string `json:"hash"`
	Author  string `json:"author"`
	Date    string `json:"date"`
	Subject string `json:"subject"`
}

type snapTag struct {
	Name    string `json:"name"`
	Date    string `json:"date,omitempty"`
	Tagger  string `json:"tagger,omitempty"`
	Subject string `json:"annotationSubject,omitempty"`
	Body    string `json:"annotationBody,omitempty"`
}

type setDirResult struct {
	Success    bool      `json:"success"`
	Path       string    `json:"path"`
	Message    string    `json:"message"`
	Repository *snapshot `json:"repository,omitempty"`
	Warnings   []string  `json:"enrichmentWarnings,omitempty"`
}

func (s *server) setDir(ctx context.Context, in setDirArgs) (setDirResult, error) {
	if in.Path == "" {
		return setDirResult{}, errors.New("path is required")
	}
	dir, err := s.existing(in.Path)
	if err != nil {
		return setDirResult{}, err
	}
	r, err := s.open(ctx, dir)
	if err != nil && in.InitIfAbsent {
		if _, ierr := s.initRepo(ctx, initArgs{Path: dir}); ierr != nil {
			return setDirResult{}, errors.Join(err, ierr)
		}
		r, err = s.open(ctx, dir)
	}
	if err != nil && (in.Validate == nil || *in.Validate) {
		return setDirResult{}, err
	}
	out := setDirResult{Success: true, Path: dir, Message: "Working directory set to: " + dir}
	if err != nil {
		out.Warnings = []string{err.Error()}
	} else if out.Repository, err = r.snapshot(ctx); err != nil {
		out.Warnings = []string{err.Error()}
	} else {
		out.Repository.Remotes = r.config.remoteList()
	}
	s.mu.Lock()
	s.dir = dir
	s.mu.Unlock()
	return out, nil
}

func (r *repo) snapshot(ctx context.Context) (*snapshot, error) {
	st, err := r.state(ctx, true)
	if err != nil {
		return nil, err
	}
	out := &snapshot{
		Status: snapStatus{
			Branch: st.Branch, Clean: st.Clean, Staged: st.Staged.files(), Unstaged: st.Unstaged.files(),
			Untracked: st.Untracked, Conflicts: st.Conflicts, Upstream: st.Upstream, Ahead: st.Ahead, Behind: st.Behind,
		},
		Commits: []snapCommit{}, Tags: []snapTag{},
	}
	commits, _, err := r.commits(ctx, []string{"--max-count=5", "--end-of-options", "HEAD", "--"})
	if err != nil {
		return nil, err
	}
	for _, c := range commits {
		out.Commits = append(out.Commits, snapCommit{c.ShortHash, c.Author, date(c.Time), c.Subject})
	}
	list, err := r.tagList(ctx, 5)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		out.Tags = append(out.Tags, snapTag{t.Name, date(t.Time), t.Tagger, t.Message, t.Body})
	}
	return out, nil
}

func date(unix int64) string {
	if unix == 0 {
		return ""
	}
	return time.Unix(unix, 0).UTC().Format("2006-01-02T15:04:05.000Z")
}

type clearArgs struct {
	Confirm string `json:"confirm"`
}

type clearResult struct {
	Success  bool   `json:"success"`
	Message  string `json:"message"`
	Previous string `json:"previousPath,omitempty"`
}

// yes are the words that stand for it.
var yes = []string{"", "Y", "y", "Yes", "yes"}

func (s *server) clearDir(_ context.Context, in clearArgs) (clearResult, error) {
	if v, err := oneOf("confirm", in.Confirm, yes...); err != nil || v == "" {
		return clearResult{}, errors.Join(errors.New("confirm must be Y or yes"), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.dir
	s.dir = ""
	if was == "" {
		return clearResult{Success: true, Message: "No working directory was set."}, nil
	}
	return clearResult{true, "Working directory cleared. Previous path was: " + was, was}, nil
}

//go:embed wrapup.md
var wrapupText string

type wrapupArgs struct {
	Acknowledgement string `json:"acknowledgement"`
	CreateTag       *bool  `json:"createTag"`
}

type wrapupResult struct {
	Instructions string    `json:"instructions"`
	Repository   *snapshot `json:"repository,omitempty"`
	Warnings     []string  `json:"enrichmentWarnings,omitempty"`
}

func (s *server) wrapup(ctx context.Context, in wrapupArgs) (wrapupResult, error) {
	if v, err := oneOf("acknowledgement", in.Acknowledgement, yes...); err != nil || v == "" {
		return wrapupResult{}, errors.Join(errors.New("acknowledgement must be Y or yes"), err)
	}
	text := wrapupText
	if in.CreateTag != nil && !*in.CreateTag {
		kept := []string{}
		for l := range strings.Lines(text) {
			if !strings.Contains(l, "git_tag") {
				kept = append(kept, l)
			}
		}
		text = strings.Join(kept, "")
	}
	out := wrapupResult{Instructions: text}
	r, err := s.open(ctx, ".")
	if err == nil {
		out.Repository, err = r.snapshot(ctx)
	}
	if err != nil {
		out.Warnings = []string{err.Error()}
	}
	return out, nil
}

type changelogArgs struct {
	Path        string   `json:"path"`
	ReviewTypes []string `json:"reviewTypes"`
	MaxCommits  *int     `json:"maxCommits"`
	MaxTags     *int     `json:"maxTags"`
	SinceTag    string   `json:"sinceTag"`
	Branch      string   `json:"branch"`
}

type changelogCommit struct {
	Hash    string   `json:"hash"`
	Subject string   `json:"subject"`
	Author  string   `json:"author"`
	Time    int64    `json:"timestamp"`
	Refs    []string `json:"refs,omitempty"`
}

type changelogTag struct {
	Name    string `json:"name"`
	Commit  string `json:"commit"`
	Time    int64  `json:"timestamp,omitempty"`
	Message string `json:"message,omitempty"`
}

type changelogContext struct {
	Branch  *string           `json:"currentBranch"`
	Fetched int               `json:"totalCommitsFetched"`
	Commits []changelogCommit `json:"commits"`
	Tags    []changelogTag    `json:"tags"`
}

type changelogResult struct {
	Success      bool             `json:"success"`
	Types        []string         `json:"reviewTypes"`
	Context      changelogContext `json:"gitContext"`
	Instructions string           `json:"reviewInstructions"`
}

// reviews say, for each type, what to look for. "all" comes first always.
var reviews = map[string]string{
	"all":              "Read the changelog with another tool and compare it with the commits and tags below. Name the entries and commits that each finding is about.\n",
	"security":         "Security: find commits that fix or touch authentication, permissions, input handling, cryptography or dependencies, and say which the changelog does not mention or plays down.",
	"features":         "Features: list what users can do since the last tag that they could not do before, and check that each has an entry that they would understand.",
	"storyline":        "Storyline: tell in a few sentences where the project is going, release by release, and where the changelog tells it differently.",
	"gaps":             "Gaps: find commits of weight without an entry, tags without a section, kinds of change that are never written down, and entries that belong to no commit.",
	"breaking_changes": "Breaking changes: find commits that change or remove interfaces, formats, defaults or requirements, and check that each is marked and says what to do.",
	"quality":          "Quality: check that entries are dated, grouped the same way throughout, written for users, and free of repetition and internal names.",
}

func (s *server) changelog(ctx context.Context, in changelogArgs) (changelogResult, error) {
	text := []string{reviews["all"]}
	for _, t := range in.ReviewTypes {
		if reviews[t] == "" || t == "all" {
			return changelogResult{}, fmt.Errorf("reviewTypes holds %q; known are security, features, storyline, gaps, breaking_changes, quality", t)
		}
		text = append(text, reviews[t])
	}
	if len(in.ReviewTypes) == 0 || len(in.ReviewTypes) > len(reviews) {
		return changelogResult{}, errors.New("reviewTypes must name at least one type, each once")
	}
	commits, err := between("maxCommits", in.MaxCommits, 200, 1, 1000)
	if err != nil {
		return changelogResult{}, err
	}
	maxTags, err := between("maxTags", in.MaxTags, 100, 1, 1000)
	if err == nil {
		err = errors.Join(option("sinceTag", in.SinceTag), option("branch", in.Branch))
	}
	if err != nil {
		return changelogResult{}, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return changelogResult{}, err
	}
	out := changelogResult{Success: true, Types: in.ReviewTypes, Instructions: strings.Join(text, "\n")}
	return out, r.history(ctx, in, commits, maxTags, &out.Context)
}

func (r *repo) history(ctx context.Context, in changelogArgs, maxCommits, maxTags int, out *changelogContext) error {
	rev := in.Branch
	if rev == "" {
		rev = "HEAD"
	}
	if in.SinceTag != "" {
		name, err := branchName("sinceTag", in.SinceTag, tags)
		if err != nil {
			return err
		}
		rev = tags + name + ".." + rev
	}
	commits, _, err := r.commits(ctx, []string{fmt.Sprintf("--max-count=%d", maxCommits), "--end-of-options", rev, "--"})
	if err != nil {
		return err
	}
	*out = changelogContext{Fetched: len(commits), Commits: []changelogCommit{}, Tags: []changelogTag{}}
	for _, c := range commits {
		out.Commits = append(out.Commits, changelogCommit{c.ShortHash, c.Subject, c.Author, c.Time, c.Refs})
	}
	list, err := r.tagList(ctx, maxTags)
	if err != nil {
		return err
	}
	for _, t := range list {
		out.Tags = append(out.Tags, changelogTag{t.Name, t.Commit, t.Time, t.Message})
	}
	branch, err := r.current(ctx)
	if branch != "" {
		out.Branch = &branch
	}
	return err
}
