package git

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

type addArgs struct {
	Path   string   `json:"path"`
	Paths  []string `json:"paths"`
	Update bool     `json:"update"`
	All    bool     `json:"all"`
	Force  bool     `json:"force"`
}

type addResult struct {
	Success bool     `json:"success"`
	Files   []string `json:"stagedFiles"`
	Total   int      `json:"totalFiles"`
	Status  brief    `json:"status"`
}

func (s *server) add(ctx context.Context, in addArgs) (addResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return addResult{}, err
	}
	if len(in.Paths) == 0 && !in.All && !in.Update {
		return addResult{}, errors.New("paths is required unless all or update is set")
	}
	args := []string{"add"}
	args = append(args, when(in.Update, "--update")...)
	args = append(args, when(in.All && !in.Update, "--all")...)
	args = append(args, when(in.Force, "--force")...)
	specs, err := r.pathspecs("paths", in.Paths)
	if err != nil {
		return addResult{}, err
	}
	if _, err := r.run(ctx, writes, append(args, specs...)...); err != nil {
		return addResult{}, err
	}
	st, err := r.state(ctx, true)
	if err != nil {
		return addResult{}, err
	}
	files := in.Paths
	if len(files) == 0 {
		files = st.Staged.files()
	}
	return addResult{true, files, len(files), st.brief()}, nil
}

type person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

type commitArgs struct {
	Path         string   `json:"path"`
	Message      string   `json:"message"`
	Author       *person  `json:"author"`
	Amend        bool     `json:"amend"`
	AllowEmpty   bool     `json:"allowEmpty"`
	NoVerify     bool     `json:"noVerify"`
	FilesToStage []string `json:"filesToStage"`
}

type commitResult struct {
	Success    bool     `json:"success"`
	Hash       string   `json:"commitHash"`
	Message    string   `json:"message"`
	Author     string   `json:"author"`
	Time       int64    `json:"timestamp"`
	Files      int      `json:"filesChanged"`
	Committed  []string `json:"committedFiles"`
	Insertions int      `json:"insertions"`
	Deletions  int      `json:"deletions"`
	Signed     bool     `json:"signed"`
	Status     brief    `json:"status"`
}

func (s *server) commit(ctx context.Context, in commitArgs) (commitResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return commitResult{}, err
	}
	args, err := in.options()
	if err != nil {
		return commitResult{}, err
	}
	if len(in.FilesToStage) > 0 {
		specs, err := r.pathspecs("filesToStage", in.FilesToStage)
		if err != nil {
			return commitResult{}, err
		}
		if _, err := r.run(ctx, writes, append([]string{"add"}, specs...)...); err != nil {
			return commitResult{}, err
		}
	}
	res, err := r.exec(ctx, writes, message(in.Message), args...)
	if err != nil {
		return commitResult{}, fmt.Errorf("running git commit: %w", err)
	}
	if res.Code != 0 {
		return commitResult{}, &failure{"commit", res}
	}
	return r.committed(ctx)
}

func (in commitArgs) options() ([]string, error) {
	if strings.TrimSpace(in.Message) == "" {
		return nil, errors.New("message is required")
	}
	if len(in.Message) > 100_000 {
		return nil, errors.New("message has more than 100000 bytes")
	}
	args := []string{"commit", "--file=-", "--cleanup=whitespace", "--no-verify", "--no-gpg-sign", "--no-status"}
	args = append(args, when(in.Amend, "--amend")...)
	args = append(args, when(in.AllowEmpty, "--allow-empty")...)
	if in.Author != nil {
		who := in.Author.Name + in.Author.Email
		if in.Author.Name == "" || in.Author.Email == "" || len(who) > 1000 || strings.ContainsFunc(who, control) || strings.ContainsAny(who, "<>") {
			return nil, errors.New("author needs a name and an email without < and >")
		}
		args = append(args, fmt.Sprintf("--author=%s <%s>", in.Author.Name, in.Author.Email))
	}
	return args, nil
}

// message returns a commit message as it is meant: agents that escape twice send
// the two characters \n for a line break.
func message(m string) string {
	if !strings.Contains(m, "\n") {
		m = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(m)
	}
	return m
}

func (r *repo) committed(ctx context.Context) (commitResult, error) {
	commits, _, err := r.commits(ctx, []string{"--max-count=1", "--end-of-options", "HEAD", "--"})
	if err != nil {
		return commitResult{}, err
	}
	if len(commits) != 1 {
		return commitResult{}, errors.New("the commit cannot be read back")
	}
	c := commits[0]
	items, err := r.list(ctx, "diff-tree", "--root", "--no-commit-id", "-r", "--numstat", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", c.Hash, "--")
	if err != nil {
		return commitResult{}, err
	}
	out := commitResult{Success: true, Hash: c.Hash, Author: c.Author, Time: c.Time, Committed: []string{}}
	out.Message = strings.TrimRight(c.Subject+"\n\n"+c.Body, "\n")
	for name, n := range parseNumstat(items) {
		out.Committed = append(out.Committed, name)
		out.Insertions, out.Deletions = out.Insertions+max(0, n[0]), out.Deletions+max(0, n[1])
	}
	slices.Sort(out.Committed)
	out.Files = len(out.Committed)
	st, err := r.state(ctx, true)
	out.Status = st.brief()
	return out, err
}

type checkoutArgs struct {
	Path         string   `json:"path"`
	Target       string   `json:"target"`
	CreateBranch bool     `json:"createBranch"`
	Force        bool     `json:"force"`
	Paths        []string `json:"paths"`
	Track        *bool    `json:"track"`
}

type checkoutResult struct {
	Success  bool     `json:"success"`
	Target   string   `json:"target"`
	Created  bool     `json:"branchCreated"`
	Modified []string `json:"filesModified"`
}

func (s *server) checkout(ctx context.Context, in checkoutArgs) (checkoutResult, error) {
	out := checkoutResult{Success: true, Target: in.Target, Created: in.CreateBranch, Modified: []string{}}
	r, err := s.open(ctx, in.Path)
	if err == nil {
		err = word("target", in.Target)
	}
	if err != nil {
		return out, err
	}
	// Without --quiet git would tell what is changed, and look into submodules for it.
	args := append([]string{"checkout", "--quiet"}, when(in.Force, "--force")...)
	target := strings.TrimPrefix(in.Target, heads)
	switch {
	case in.CreateBranch && len(in.Paths) > 0:
		return out, errors.New("createBranch and paths cannot be given together")
	case in.CreateBranch:
		if target, err = branchName("target", in.Target, heads); err != nil {
			return out, err
		}
		args = append(args, when(in.Track != nil && !*in.Track, "--no-track")...)
		args = append(args, "-b", target, "--")
	case len(in.Paths) > 0:
		specs, err := r.pathspecs("paths", in.Paths)
		if err != nil {
			return out, err
		}
		args = append(append(args, "--no-overlay", target), specs...)
		out.Modified = in.Paths
	default:
		args = append(args, when(in.Track != nil && *in.Track, "--track")...)
		args = append(args, target, "--")
	}
	_, err = r.run(ctx, writes, args...)
	return out, err
}

type resetArgs struct {
	Path      string   `json:"path"`
	Mode      string   `json:"mode"`
	Target    string   `json:"target"`
	Paths     []string `json:"paths"`
	Confirmed bool     `json:"confirmed"`
}

type resetResult struct {
	Success  bool     `json:"success"`
	Mode     string   `json:"mode"`
	Target   string   `json:"target"`
	Previous string   `json:"previousCommit,omitempty"`
	Files    []string `json:"filesReset"`
}

func (s *server) reset(ctx context.Context, in resetArgs) (resetResult, error) {
	if in.Target == "" {
		in.Target = "HEAD"
	}
	mode, err := oneOf("mode", in.Mode, "mixed", "soft", "hard", "merge", "keep")
	if err == nil {
		err = word("target", in.Target)
	}
	if err != nil {
		return resetResult{}, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return resetResult{}, err
	}
	before, err := r.commitID(ctx, "HEAD")
	if err != nil {
		return resetResult{}, err
	}
	if mode != "soft" && mode != "mixed" {
		branch, err := r.current(ctx)
		if err == nil {
			err = confirm("'reset --"+mode+"'", branch, in.Confirmed)
		}
		if err != nil {
			return resetResult{}, err
		}
	}
	out := resetResult{Success: true, Mode: mode, Target: in.Target, Previous: before, Files: []string{}}
	if len(in.Paths) > 0 {
		if mode != "mixed" {
			return out, fmt.Errorf("paths cannot be reset with mode %s", mode)
		}
		specs, err := r.pathspecs("paths", in.Paths)
		if err != nil {
			return out, err
		}
		out.Files = in.Paths
		_, err = r.run(ctx, writes, append([]string{"reset", "--quiet", in.Target}, specs...)...)
		return out, err
	}
	if _, err := r.run(ctx, writes, "reset", "--quiet", "--"+mode, in.Target, "--"); err != nil {
		return out, err
	}
	if out.Target, err = r.commitID(ctx, "HEAD"); err != nil {
		return out, err
	}
	out.Files, err = r.changed(ctx, before, out.Target)
	return out, err
}

type cleanArgs struct {
	Path        string `json:"path"`
	Force       bool   `json:"force"`
	DryRun      bool   `json:"dryRun"`
	Directories bool   `json:"directories"`
	Ignored     bool   `json:"ignored"`
}

type cleanResult struct {
	Success bool     `json:"success"`
	Files   []string `json:"filesRemoved"`
	Dirs    []string `json:"directoriesRemoved"`
	DryRun  bool     `json:"dryRun"`
}

func (s *server) clean(ctx context.Context, in cleanArgs) (cleanResult, error) {
	out := cleanResult{Success: true, Files: []string{}, Dirs: []string{}, DryRun: in.DryRun}
	if !in.Force && !in.DryRun {
		return out, errors.New("clean removes files for good: set force, or dryRun to see what would be removed")
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	args := []string{"clean", "--force"}
	a := writes
	if in.DryRun {
		args, a = []string{"clean", "--dry-run"}, reads
	}
	args = append(args, when(in.Directories, "-d")...)
	args = append(args, when(in.Ignored, "-x")...)
	text, err := r.run(ctx, a, append(args, "--")...)
	for l := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSuffix(l, "\n"), "Removing ")
		if !ok {
			if name, ok = strings.CutPrefix(name, "Would remove "); !ok {
				continue
			}
		}
		// git quotes odd names as C does, whose escapes are Go's as well.
		if plain, err := strconv.Unquote(name); err == nil && name[0] == '"' {
			name = strings.ToValidUTF8(plain, "\uFFFD")
		}
		if strings.HasSuffix(name, "/") {
			out.Dirs = append(out.Dirs, name)
		} else {
			out.Files = append(out.Files, name)
		}
	}
	return out, err
}

type stashArgs struct {
	Path             string `json:"path"`
	Mode             string `json:"mode"`
	Message          string `json:"message"`
	StashRef         string `json:"stashRef"`
	IncludeUntracked bool   `json:"includeUntracked"`
	KeepIndex        bool   `json:"keepIndex"`
	Limit            *int   `json:"limit"`
}

type stashEntry struct {
	Ref         string `json:"ref"`
	Index       int    `json:"index"`
	Branch      string `json:"branch"`
	Description string `json:"description"`
	Time        int64  `json:"timestamp"`
}

type stashResult struct {
	Success   bool          `json:"success"`
	Mode      string        `json:"mode"`
	Stashes   *[]stashEntry `json:"stashes,omitempty"`
	Created   string        `json:"created,omitempty"`
	Applied   string        `json:"applied,omitempty"`
	Dropped   string        `json:"dropped,omitempty"`
	Conflicts *bool         `json:"conflicts,omitempty"`
}

var stashRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:refs/)?stash@\{[0-9]{1,9}\}$`) })

func (s *server) stash(ctx context.Context, in stashArgs) (stashResult, error) {
	mode, err := oneOf("mode", in.Mode, "push", "list", "pop", "apply", "drop", "clear")
	if err != nil {
		return stashResult{}, err
	}
	out := stashResult{Success: true, Mode: mode}
	if in.StashRef == "" {
		in.StashRef = "stash@{0}"
	}
	if !stashRef().MatchString(in.StashRef) {
		return out, fmt.Errorf("stashRef is %q, must look like stash@{0}", in.StashRef)
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	switch mode {
	case "list":
		return out, r.stashes(ctx, in.Limit, &out)
	case "push":
		return out, r.stashPush(ctx, in, &out)
	case "drop":
		out.Dropped = in.StashRef
		_, err = r.run(ctx, writes, "stash", "drop", "--quiet", in.StashRef)
	case "clear":
		_, err = r.run(ctx, writes, "stash", "clear")
	default:
		out.Applied = in.StashRef
		var clash bool
		// Without --quiet git would run git status, see checkout.
		_, err = r.run(ctx, writes, "stash", mode, "--quiet", in.StashRef)
		if err != nil {
			files, cerr := r.conflicts(ctx)
			if clash = cerr == nil && len(files) > 0; clash {
				err = nil
			}
		}
		out.Conflicts = &clash
	}
	return out, err
}

func (r *repo) stashPush(ctx context.Context, in stashArgs, out *stashResult) error {
	if len(in.Message) > 10_000 || strings.IndexByte(in.Message, 0) >= 0 {
		return errors.New("message is too long or holds a NUL")
	}
	args := []string{"stash", "push"}
	args = append(args, when(in.IncludeUntracked, "--include-untracked")...)
	args = append(args, when(in.KeepIndex, "--keep-index")...)
	args = append(args, when(in.Message != "", "--message="+in.Message)...)
	text, err := r.run(ctx, writes, append(args, "--")...)
	if err == nil && !strings.Contains(text, "No local changes") {
		out.Created = "stash@{0}"
	}
	return err
}

func (r *repo) stashes(ctx context.Context, limit *int, out *stashResult) error {
	n, err := between("limit", limit, 1000, 1, 1000)
	if err != nil {
		return err
	}
	out.Stashes = &[]stashEntry{}
	items, err := r.list(ctx, "stash", "list", fmt.Sprintf("--max-count=%d", n), "-z", "--format=%gd%x00%gs%x00%ct")
	for ; len(items) >= 3; items = items[3:] {
		e := stashEntry{Ref: items[0], Index: len(*out.Stashes), Description: items[1]}
		e.Time, _ = strconv.ParseInt(items[2], 10, 64) // a number by the format
		// "WIP on main: 1234567 subject", or "On main: message".
		if on, what, ok := strings.Cut(items[1], ": "); ok {
			_, e.Branch, _ = strings.Cut(strings.TrimPrefix(on, "WIP "), "n ")
			e.Description = what
		}
		*out.Stashes = append(*out.Stashes, e)
	}
	return err
}
