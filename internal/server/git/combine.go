package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// strategies are those that git has built in. The first is said even where it is
// the default: the configuration could name another one, and that a program.
var strategies = []string{"ort", "recursive", "octopus", "ours", "subtree"}

type mergeArgs struct {
	Path          string `json:"path"`
	Branch        string `json:"branch"`
	Strategy      string `json:"strategy"`
	NoFastForward bool   `json:"noFastForward"`
	Squash        bool   `json:"squash"`
	Message       string `json:"message"`
	Abort         bool   `json:"abort"`
}

type mergeResult struct {
	Success     bool     `json:"success"`
	Strategy    string   `json:"strategy"`
	FastForward bool     `json:"fastForward"`
	Conflicts   bool     `json:"conflicts"`
	Conflicted  []string `json:"conflictedFiles"`
	Merged      []string `json:"mergedFiles"`
	Message     string   `json:"message"`
}

func (s *server) merge(ctx context.Context, in mergeArgs) (mergeResult, error) {
	strategy, err := oneOf("strategy", in.Strategy, strategies...)
	out := mergeResult{Success: true, Strategy: strategy, Conflicted: []string{}, Merged: []string{}}
	if err == nil {
		err = word("branch", in.Branch)
	}
	if err == nil && (len(in.Message) > 10_000 || strings.IndexByte(in.Message, 0) >= 0) {
		err = errors.New("message is too long or holds a NUL")
	}
	if err != nil {
		return out, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	if in.Abort {
		out.Message = "Merge aborted."
		_, err := r.run(ctx, writes, "merge", "--abort")
		return out, err
	}
	args := []string{"merge"}
	args = append(args, when(in.NoFastForward, "--no-ff")...)
	args = append(args, when(in.Squash, "--squash")...)
	args = append(args, "--strategy="+strategy)
	args = append(args, when(in.Message != "", "-m", in.Message)...)
	return out, r.mergeInto(ctx, &out, append(args, "--end-of-options", strings.TrimPrefix(in.Branch, heads)))
}

// plainMerge are the options of every merge.
var plainMerge = []string{"--no-edit", "--no-verify", "--no-verify-signatures", "--no-gpg-sign", "--no-autostash", "--no-progress", "--stat"}

// mergeInto runs a merge and says what came of it. A conflict is no error.
func (r *repo) mergeInto(ctx context.Context, out *mergeResult, args []string) error {
	before, err := r.commitID(ctx, "HEAD")
	if err != nil {
		return err
	}
	args = append(append([]string{args[0]}, plainMerge...), args[1:]...)
	res, err := r.exec(ctx, writes, "", args...)
	if err != nil {
		return fmt.Errorf("running git merge: %w", err)
	}
	out.Message = strings.TrimSpace(bounded(res))
	if res.Code != 0 {
		files, err := r.conflicts(ctx)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return &failure{"merge", res}
		}
		out.Success, out.Conflicts, out.Conflicted = false, true, files
		return nil
	}
	out.FastForward = strings.Contains(out.Message, "\nFast-forward")
	after, err := r.commitID(ctx, "HEAD")
	if err != nil {
		return err
	}
	out.Merged, err = r.changed(ctx, before, after)
	return err
}

type pickArgs struct {
	Path              string   `json:"path"`
	Commits           []string `json:"commits"`
	NoCommit          bool     `json:"noCommit"`
	ContinueOperation bool     `json:"continueOperation"`
	Abort             bool     `json:"abort"`
	Mainline          *int     `json:"mainline"`
	Strategy          string   `json:"strategy"`
	Signoff           bool     `json:"signoff"`
}

type pickResult struct {
	Success    bool     `json:"success"`
	Picked     []string `json:"pickedCommits"`
	Conflicts  bool     `json:"conflicts"`
	Conflicted []string `json:"conflictedFiles"`
	Message    string   `json:"message,omitempty"`
}

func (s *server) cherryPick(ctx context.Context, in pickArgs) (pickResult, error) {
	out := pickResult{Success: true, Picked: []string{}, Conflicted: []string{}}
	args, err := in.options()
	if err != nil {
		return out, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	if err := r.checkTodo(); err != nil {
		return out, err
	}
	if !in.Abort && !in.ContinueOperation {
		out.Picked = in.Commits
	}
	clash, err := r.attempt(ctx, args...)
	if clash != nil {
		out.Success, out.Conflicts, out.Conflicted, out.Picked = false, true, clash, []string{}
		out.Message = "Resolve the conflicts, stage the files, and call again with continueOperation."
	}
	return out, err
}

func (in pickArgs) options() ([]string, error) {
	strategy, err := oneOf("strategy", in.Strategy, strategies...)
	if err != nil {
		return nil, err
	}
	mainline, err := between("mainline", in.Mainline, 0, 1, 64)
	switch {
	case err != nil:
		return nil, err
	case in.Abort && in.ContinueOperation:
		return nil, errors.New("abort and continueOperation cannot be given together")
	case in.Abort:
		return []string{"cherry-pick", "--abort"}, nil
	case in.ContinueOperation:
		return []string{"cherry-pick", "--continue"}, nil
	case len(in.Commits) == 0 || len(in.Commits) > 1000:
		return nil, fmt.Errorf("commits must name between 1 and 1000 commits, not %d", len(in.Commits))
	}
	args := []string{"cherry-pick", "--no-gpg-sign", "--strategy=" + strategy}
	args = append(args, when(in.NoCommit, "--no-commit")...)
	args = append(args, when(in.Signoff, "--signoff")...)
	args = append(args, when(mainline > 0, fmt.Sprintf("--mainline=%d", mainline))...)
	args = append(args, "--end-of-options")
	for _, c := range in.Commits {
		if err := word("commits", c); err != nil {
			return nil, err
		}
		args = append(args, c)
	}
	return args, nil
}

// attempt runs a command that can end in conflicts, and returns the files in
// conflict, nil if there are none.
func (r *repo) attempt(ctx context.Context, args ...string) ([]string, error) {
	_, err := r.run(ctx, writes, args...)
	if _, ok := errors.AsType[*failure](err); !ok {
		return nil, err
	}
	files, cerr := r.conflicts(ctx)
	if cerr != nil {
		return nil, errors.Join(err, cerr)
	}
	if len(files) == 0 {
		return nil, err
	}
	return files, nil
}

type rebaseArgs struct {
	Path        string `json:"path"`
	Mode        string `json:"mode"`
	Upstream    string `json:"upstream"`
	Branch      string `json:"branch"`
	Interactive bool   `json:"interactive"`
	Onto        string `json:"onto"`
	Preserve    bool   `json:"preserve"`
}

type rebaseResult struct {
	Success    bool     `json:"success"`
	Conflicts  bool     `json:"conflicts"`
	Conflicted []string `json:"conflictedFiles"`
	Rebased    int      `json:"rebasedCommits"`
	Current    string   `json:"currentCommit,omitempty"`
	Message    string   `json:"message,omitempty"`
}

func (s *server) rebase(ctx context.Context, in rebaseArgs) (rebaseResult, error) {
	args, err := in.options()
	if err != nil {
		return rebaseResult{}, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return rebaseResult{}, err
	}
	return r.rebaseOnto(ctx, in.Upstream, args)
}

func (in rebaseArgs) options() ([]string, error) {
	mode, err := oneOf("mode", in.Mode, "start", "continue", "abort", "skip")
	switch {
	case err != nil:
		return nil, err
	case mode != "start":
		return []string{"rebase", "--" + mode}, nil
	case in.Interactive:
		return nil, errors.New("interactive rebasing is not possible; use git_reset, git_cherry_pick and git_commit with amend")
	}
	if err := word("upstream", in.Upstream); err != nil {
		return nil, err
	}
	if err := errors.Join(option("branch", in.Branch), option("onto", in.Onto)); err != nil {
		return nil, err
	}
	args := append([]string{"rebase"}, plainRebase...)
	args = append(args, when(in.Preserve, "--rebase-merges")...)
	args = append(args, when(in.Onto != "", "--onto="+in.Onto)...)
	args = append(args, "--end-of-options", in.Upstream)
	return append(args, when(in.Branch != "", strings.TrimPrefix(in.Branch, heads))...), nil
}

var plainRebase = []string{"--no-gpg-sign", "--no-verify", "--no-autostash", "--no-autosquash", "--no-stat", "--quiet", "--strategy=ort"}

func (r *repo) rebaseOnto(ctx context.Context, upstream string, args []string) (rebaseResult, error) {
	out := rebaseResult{Success: true, Conflicted: []string{}}
	if err := r.checkTodo(); err != nil {
		return out, err
	}
	clash, err := r.attempt(ctx, args...)
	if err != nil {
		return out, err
	}
	if clash != nil {
		out.Success, out.Conflicts, out.Conflicted = false, true, clash
		out.Message = "Resolve the conflicts, stage the files, and call again with mode continue."
		return out, nil
	}
	if out.Current, err = r.commitID(ctx, "HEAD"); err != nil || upstream == "" {
		return out, err
	}
	n, err := r.line(ctx, "rev-list", "--count", "--end-of-options", upstream+"..HEAD", "--")
	if err == nil {
		_, err = fmt.Sscan(n, &out.Rebased)
	}
	return out, err
}

// checkTodo refuses to go on with a rebase whose plan runs programs: the plan is a
// file that anyone with access to the repository can have written.
func (r *repo) checkTodo() error {
	for _, name := range []string{"rebase-merge/git-rebase-todo", "sequencer/todo"} {
		b, err := readSmall(filepath.Join(r.gitDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the plan of a rebase: %w", reason(err))
		}
		for l := range strings.Lines(string(b)) {
			f := strings.Fields(l)
			if len(f) > 0 && (f[0] == "exec" || f[0] == "x") {
				return fmt.Errorf("the rebase in progress would run %q; use mode abort, or remove that line", strings.TrimSpace(l))
			}
		}
	}
	return nil
}
