package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

type fetchArgs struct {
	Path   string `json:"path"`
	Remote string `json:"remote"`
	Prune  bool   `json:"prune"`
	Tags   bool   `json:"tags"`
	Depth  *int   `json:"depth"`
}

type fetchResult struct {
	Success bool     `json:"success"`
	Remote  string   `json:"remote"`
	Fetched []string `json:"fetchedRefs"`
	Pruned  []string `json:"prunedRefs"`
}

func (s *server) fetch(ctx context.Context, in fetchArgs) (fetchResult, error) {
	depth, err := between("depth", in.Depth, 0, 1, 1<<30)
	if err != nil {
		return fetchResult{}, err
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return fetchResult{}, err
	}
	t, err := r.findTarget(ctx, in.Remote, false)
	if err != nil {
		return fetchResult{}, err
	}
	specs, err := r.fetchSpecs(t)
	if err != nil {
		return fetchResult{}, err
	}
	before, err := r.refs(ctx)
	if err != nil {
		return fetchResult{}, err
	}
	var extra []string
	extra = append(extra, when(in.Prune, "--prune")...)
	extra = append(extra, when(in.Tags, "--tags")...)
	extra = append(extra, when(depth > 0, fmt.Sprintf("--depth=%d", depth))...)
	if err := r.fetchFrom(ctx, t, extra, specs); err != nil {
		return fetchResult{}, err
	}
	after, err := r.refs(ctx)
	if err != nil {
		return fetchResult{}, err
	}
	out := fetchResult{Success: true, Remote: t.title(), Fetched: []string{}, Pruned: []string{}}
	for ref, hash := range after {
		if before[ref] != hash {
			out.Fetched = append(out.Fetched, shortRef(ref))
		}
	}
	for ref := range before {
		if _, ok := after[ref]; !ok {
			out.Pruned = append(out.Pruned, shortRef(ref))
		}
	}
	slices.Sort(out.Fetched)
	slices.Sort(out.Pruned)
	return out, nil
}

// fetchFrom runs git fetch from the URL of t.
func (r *repo) fetchFrom(ctx context.Context, t target, extra, specs []string) error {
	u := t.urls[0]
	args := []string{"fetch", "--no-progress", "--no-recurse-submodules", "--no-auto-maintenance", "--no-write-commit-graph"}
	args = append(args, r.s.far(u, "--upload-pack", "upload-pack")...)
	args = append(append(args, extra...), "--end-of-options", u)
	_, err := r.run(ctx, contacts, append(args, specs...)...)
	return err
}

// fetchSpecs returns what is to be fetched from a remote. The configured refspecs
// count as long as they write remote-tracking branches of that remote, or tags: any
// other would change branches that the call does not mention.
func (r *repo) fetchSpecs(t target) ([]string, error) {
	if t.name == "" {
		return nil, nil
	}
	if !validName(t.name) {
		return nil, fmt.Errorf("the remote %q has a name that cannot be part of a ref", t.name)
	}
	specs := r.config.all("remote", t.name, "fetch")
	if len(specs) == 0 {
		return []string{"+refs/heads/*:refs/remotes/" + t.name + "/*"}, nil
	}
	for _, spec := range specs {
		from, to, _ := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
		if from == "" || word("refspec", spec) != nil || from[0] != '^' &&
			!strings.HasPrefix(to, "refs/remotes/"+t.name+"/") && !strings.HasPrefix(to, tags) {
			return nil, fmt.Errorf("remote.%s.fetch is %q, which writes elsewhere than refs/remotes/%[1]s; change that setting", t.name, spec)
		}
	}
	return specs, nil
}

// refs returns the remote-tracking branches and tags with what they point to, but
// for those that only stand for others.
func (r *repo) refs(ctx context.Context) (map[string]string, error) {
	text, err := r.run(ctx, reads, "for-each-ref", "--format=%(objectname) %(refname) %(symref)", "refs/remotes", "refs/tags")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for l := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		if f := strings.Fields(l); len(f) == 2 {
			all[f[1]] = f[0]
		}
	}
	return all, nil
}

func shortRef(ref string) string {
	for _, prefix := range []string{heads, tags, "refs/remotes/"} {
		if s, ok := strings.CutPrefix(ref, prefix); ok {
			return s
		}
	}
	return ref
}

type pullArgs struct {
	Path            string `json:"path"`
	Remote          string `json:"remote"`
	Branch          string `json:"branch"`
	Rebase          bool   `json:"rebase"`
	FastForwardOnly bool   `json:"fastForwardOnly"`
}

type pullResult struct {
	Success    bool     `json:"success"`
	Remote     string   `json:"remote"`
	Branch     string   `json:"branch"`
	Strategy   string   `json:"strategy"`
	Conflicts  bool     `json:"conflicts"`
	Conflicted []string `json:"conflictedFiles"`
	Files      []string `json:"filesChanged"`
}

func (s *server) pull(ctx context.Context, in pullArgs) (pullResult, error) {
	if in.Rebase && in.FastForwardOnly {
		return pullResult{}, errors.New("rebase and fastForwardOnly cannot be given together")
	}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return pullResult{}, err
	}
	t, err := r.findTarget(ctx, in.Remote, false)
	if err != nil {
		return pullResult{}, err
	}
	ref, err := r.pullRef(ctx, in.Branch)
	if err != nil {
		return pullResult{}, err
	}
	spec := ref
	if branch, ok := strings.CutPrefix(ref, heads); ok && t.name != "" && validName(t.name) {
		spec = "+" + ref + ":refs/remotes/" + t.name + "/" + branch
	}
	if err := r.fetchFrom(ctx, t, nil, []string{spec}); err != nil {
		return pullResult{}, err
	}
	// By its hash: FETCH_HEAD is a file that another call can write meanwhile.
	got, err := r.commitID(ctx, "FETCH_HEAD")
	if err != nil || got == "" {
		return pullResult{}, errors.Join(errors.New("git fetched nothing to merge"), err)
	}
	out := pullResult{Success: true, Remote: t.title(), Branch: shortRef(ref), Strategy: "merge", Conflicted: []string{}, Files: []string{}}
	return out, r.integrate(ctx, in, got, &out)
}

// pullRef returns the ref of the remote that a pull is about: the one given, or what
// the current branch tracks, or the branch of the same name.
func (r *repo) pullRef(ctx context.Context, branch string) (string, error) {
	if branch != "" {
		return fullRef("branch", branch)
	}
	cur, err := r.current(ctx)
	if err != nil {
		return "", err
	}
	if cur == "" {
		return "", errors.New("HEAD is detached; give the branch to pull")
	}
	if merge, ok := r.config.last("branch", cur, "merge"); ok {
		return fullRef("branch."+cur+".merge", merge)
	}
	return heads + cur, nil
}

// fullRef returns the full name of a branch or tag. A short name is a branch.
func fullRef(arg, v string) (string, error) {
	if strings.HasPrefix(v, tags) {
		name, err := branchName(arg, v, tags)
		return tags + name, err
	}
	name, err := branchName(arg, v, heads)
	return heads + name, err
}

func (r *repo) integrate(ctx context.Context, in pullArgs, commit string, out *pullResult) error {
	before, err := r.commitID(ctx, "HEAD")
	if err != nil {
		return err
	}
	if in.Rebase {
		out.Strategy = "rebase"
		args := append(append([]string{"rebase"}, plainRebase...), "--end-of-options", commit)
		res, err := r.rebaseOnto(ctx, commit, args)
		if err != nil {
			return err
		}
		out.Conflicts, out.Conflicted = res.Conflicts, res.Conflicted
	} else {
		m := mergeResult{Conflicted: []string{}}
		args := append([]string{"merge", "--strategy=ort"}, when(in.FastForwardOnly, "--ff-only")...)
		args = append(args, "-m", fmt.Sprintf("Merge branch '%s' of %s", out.Branch, out.Remote), "--end-of-options", commit)
		if err := r.mergeInto(ctx, &m, args); err != nil {
			return err
		}
		out.Conflicts, out.Conflicted = m.Conflicts, m.Conflicted
		if m.FastForward {
			out.Strategy = "fast-forward"
		}
	}
	out.Success = !out.Conflicts
	after, err := r.commitID(ctx, "HEAD")
	if err != nil {
		return err
	}
	out.Files, err = r.changed(ctx, before, after)
	return err
}

type pushArgs struct {
	Path           string `json:"path"`
	Remote         string `json:"remote"`
	Branch         string `json:"branch"`
	Force          bool   `json:"force"`
	ForceWithLease bool   `json:"forceWithLease"`
	SetUpstream    bool   `json:"setUpstream"`
	Tags           bool   `json:"tags"`
	DryRun         bool   `json:"dryRun"`
	Delete         bool   `json:"delete"`
	RemoteBranch   string `json:"remoteBranch"`
	Confirmed      bool   `json:"confirmed"`
}

type pushResult struct {
	Success     bool     `json:"success"`
	Remote      string   `json:"remote"`
	Branch      string   `json:"branch"`
	UpstreamSet bool     `json:"upstreamSet"`
	Pushed      []string `json:"pushedRefs"`
	Rejected    []string `json:"rejectedRefs"`
}

func (s *server) push(ctx context.Context, in pushArgs) (pushResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return pushResult{}, err
	}
	t, err := r.findTarget(ctx, in.Remote, true)
	if err != nil {
		return pushResult{}, err
	}
	src, dst, err := r.pushRefs(ctx, in)
	if err != nil {
		return pushResult{}, err
	}
	branch := shortRef(dst)
	if in.Force && !in.ForceWithLease {
		err = confirm("'force push'", branch, in.Confirmed)
	} else if in.Delete {
		err = confirm("'delete'", branch, in.Confirmed)
	}
	if err != nil {
		return pushResult{}, err
	}
	options, err := r.pushOptions(ctx, in, t, dst)
	if err != nil {
		return pushResult{}, err
	}
	out := pushResult{Success: true, Remote: t.title(), Branch: branch, Pushed: []string{}, Rejected: []string{}}
	for _, u := range t.urls {
		if err := r.pushTo(ctx, u, options, src+":"+dst, &out); err != nil {
			return out, err
		}
	}
	if in.DryRun || len(out.Rejected) > 0 {
		return out, nil
	}
	return out, r.afterPush(ctx, in, t, src, dst, &out)
}

// pushRefs returns what is pushed, as full names: src is empty for a deletion.
func (r *repo) pushRefs(ctx context.Context, in pushArgs) (src, dst string, err error) {
	name := in.Branch
	if name == "" || name == "HEAD" || name == "@" {
		if name, err = r.current(ctx); err != nil {
			return "", "", err
		}
		if name == "" {
			return "", "", errors.New("HEAD is detached; give the branch to push")
		}
	}
	if src, err = fullRef("branch", name); err != nil {
		return "", "", err
	}
	dst = src
	if in.RemoteBranch != "" {
		if dst, err = fullRef("remoteBranch", in.RemoteBranch); err != nil {
			return "", "", err
		}
	}
	if in.Delete {
		return "", dst, nil
	}
	for _, try := range []string{src, tags + name} {
		// A short name that is no branch can be a tag, as for git.
		ok, err := r.exists(ctx, try)
		if err != nil {
			return "", "", err
		}
		if ok && try != src && in.RemoteBranch == "" {
			dst = try
		}
		if ok {
			return try, dst, nil
		}
	}
	return "", "", fmt.Errorf("there is no branch or tag %s here", name)
}

func (r *repo) pushOptions(ctx context.Context, in pushArgs, t target, dst string) ([]string, error) {
	args := []string{"push", "--porcelain", "--no-progress", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no"}
	args = append(args, when(in.Tags, "--tags")...)
	args = append(args, when(in.DryRun, "--dry-run")...)
	switch {
	case in.ForceWithLease:
		// Said in full, because git takes it from remote-tracking branches of the
		// remote's name, which it does not see.
		branch, isBranch := strings.CutPrefix(dst, heads)
		if t.name == "" || !isBranch {
			return nil, errors.New("forceWithLease needs a branch of a configured remote; use force")
		}
		seen, err := r.commitID(ctx, "refs/remotes/"+t.name+"/"+branch)
		if err != nil {
			return nil, err
		}
		if seen == "" {
			return nil, fmt.Errorf("%s was never fetched from %s, so there is no state to expect; fetch first", branch, t.name)
		}
		args = append(args, "--force-with-lease="+dst+":"+seen)
	case in.Force:
		args = append(args, "--force")
	}
	return args, nil
}

// pushTo pushes to one URL and adds to out what came of it. A rejected ref is no
// error; anything else that failed is.
func (r *repo) pushTo(ctx context.Context, u string, options []string, spec string, out *pushResult) error {
	args := append(slices.Clone(options), r.s.far(u, "--receive-pack", "receive-pack")...)
	res, err := r.exec(ctx, contacts, "", append(args, "--end-of-options", u, spec)...)
	if err != nil {
		return fmt.Errorf("running git push: %w", err)
	}
	rejected := len(out.Rejected)
	for l := range strings.Lines(strings.ToValidUTF8(string(res.Stdout), "\uFFFD")) {
		flag, rest, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		if !ok || len(flag) != 1 {
			continue
		}
		refs, _, _ := strings.Cut(rest, "\t")
		_, to, _ := strings.Cut(refs, ":")
		switch flag {
		case "!":
			out.Rejected = append(out.Rejected, shortRef(to))
		case "=": // up to date
		default:
			out.Pushed = append(out.Pushed, shortRef(to))
		}
	}
	if len(out.Rejected) > rejected {
		out.Success = false
		return nil
	}
	if res.Code != 0 {
		return &failure{"push", res}
	}
	return nil
}

// afterPush does what git does by itself when it knows the name of the remote: it
// moves the remote-tracking branch and sets the upstream.
func (r *repo) afterPush(ctx context.Context, in pushArgs, t target, src, dst string, out *pushResult) error {
	branch, isBranch := strings.CutPrefix(dst, heads)
	if t.name == "" || !isBranch || !validName(t.name) {
		return nil
	}
	ref := "refs/remotes/" + t.name + "/" + branch
	if in.Delete {
		_, err := r.run(ctx, writes, "update-ref", "-d", "--end-of-options", ref)
		return err
	}
	hash, err := r.commitID(ctx, src)
	if err != nil || hash == "" {
		return err
	}
	if _, err := r.run(ctx, writes, "update-ref", "-m", "update by push", "--end-of-options", ref, hash); err != nil {
		return err
	}
	local, isBranch := strings.CutPrefix(src, heads)
	if !in.SetUpstream || !isBranch {
		return nil
	}
	for _, set := range [][2]string{{"remote", t.name}, {"merge", dst}} {
		if _, err := r.run(ctx, writes, "config", "--local", "branch."+local+"."+set[0], set[1]); err != nil {
			return err
		}
	}
	out.UpstreamSet = true
	return nil
}
