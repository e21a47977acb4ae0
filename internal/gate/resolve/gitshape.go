package resolve

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act"
)

// gitNames are what git keeps in a repository and takes its orders, its refs or
// its objects from, in lower case.
var gitNames = []string{
	"head", "config", "config.worktree", "commondir", "gitdir", "hooks", "info", "objects", "refs", "packed-refs", "index", "shallow",
	"logs", "modules", "worktrees", "remotes", "branches", "sequencer", "rebase-merge", "rebase-apply", "lfs", "svn", "annex",
}

// gitShape are the names that make a directory a repository, whatever it is called: HEAD,
// and objects and refs, or commondir in place of the two, which says where they are.
var gitShape = []string{"HEAD", "objects", "refs", "commondir"}

// inGitShape reports whether p is a part of a repository that is not called
// ".git", or would make a directory that has a configuration or hooks one. An
// agent can make such a directory where it may make files, and git, run in it by
// anybody, obeys its configuration.
func inGitShape(p string) bool {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		name, _, _ := strings.Cut(strings.TrimPrefix(p[len(dir):], "/"), "/")
		if slices.Contains(gitNames, strings.ToLower(name)) && (shaped(dir, "") || shaped(dir, name) && armed(dir, name)) {
			return true
		}
		if dir == "/" {
			return false
		}
	}
}

// shaped reports whether dir is a repository by gitShape, also counting the one that is
// about to be made.
func shaped(dir, made string) bool {
	if made != "" && !slices.ContainsFunc(gitShape, func(s string) bool { return strings.EqualFold(s, made) }) {
		return false
	}
	has := func(name string) bool {
		_, err := os.Lstat(join(dir, name))
		return err == nil || strings.EqualFold(name, made)
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// armed reports whether dir has something that a repository runs, also counting what is
// about to be made.
func armed(dir, made string) bool {
	if strings.EqualFold(made, "commondir") {
		return true
	}
	for _, s := range []string{"config", "config.worktree", "commondir", "hooks"} {
		if _, err := os.Lstat(join(dir, s)); err == nil {
			return true
		}
	}
	return false
}

// isGitDir is git's test (setup.c, is_git_directory): HEAD, objects and refs, or a
// commondir that leads to them. A
// directory that has them with a HEAD that git would not take is an error: git
// would go on to the repository around it.
func isGitDir(d string) (bool, error) {
	if _, err := os.Lstat(join(d, "HEAD")); err != nil {
		return false, nil //nolint:nilerr // what git cannot see is no repository to git
	}
	if _, err := os.Lstat(join(d, "commondir")); err == nil {
		return true, nil // whatever is there, git looks
	}
	for _, name := range []string{"objects", "refs"} {
		info, err := os.Stat(join(d, name))
		if err != nil || !info.IsDir() {
			return false, nil //nolint:nilerr // the same
		}
	}
	if !validHead(join(d, "HEAD")) {
		return false, bad("", "goes through %q, which looks like a repository and has no valid HEAD", d)
	}
	return true, nil
}

// validHead is validate_headref of git, and no more lenient.
func validHead(name string) bool {
	info, err := os.Lstat(name)
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(name)
		return err == nil && strings.HasPrefix(target, "refs/")
	}
	b, err := readBounded(name, maxPath)
	if err != nil {
		return false
	}
	if ref, ok := strings.CutPrefix(string(b), "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t\n\v\f\r"), "refs/")
	}
	id := strings.TrimRight(string(b), "\n")
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdefABCDEF") == ""
}

// bareSettings are the settings that a bare repository may have: those that git
// init, clone and remote write. "*" stands for any name.
var bareSettings = []string{
	"core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates", "core.ignorecase", "core.precomposeunicode",
	"core.symlinks", "core.sharedrepository", "core.worktree", "extensions.objectformat", "extensions.refstorage",
	"remote.*.url", "remote.*.pushurl", "remote.*.fetch", "remote.*.push", "remote.*.mirror", "remote.*.tagopt",
	"remote.*.vcs", "remote.*.uploadpack", "remote.*.receivepack", // refused where the remote is used
	"branch.*.remote", "branch.*.merge", "branch.*.rebase", "branch.*.description",
	"receive.denynonfastforwards", "receive.denydeletes", "receive.denycurrentbranch", "user.name", "user.email",
	"gc.auto", "pack.threads", "push.default", "init.defaultbranch", "url.*.insteadof", "url.*.pushinsteadof",
}

// checkBare refuses a bare repository that makes git run a program. One within a
// directory called ".git" belongs to the person; any other may have come with the
// files of the agent.
func (s *repoSubject) checkBare() error {
	if strings.Contains(s.gitDir+"/", "/.git/") {
		return nil
	}
	c, err := readGitConfig(join(s.gitDir, "config"))
	if err != nil {
		return err
	}
	for i := range c {
		name := c[i].section + "." + c[i].key
		if c[i].sub != "" {
			name = c[i].section + ".*." + c[i].key
		}
		if !slices.Contains(bareSettings, name) {
			return bad("remove that setting", "is in the bare repository %q, whose configuration sets %s, which may name a program", s.gitDir, name)
		}
	}
	hooks, err := os.ReadDir(join(s.gitDir, "hooks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bad("", "is in the bare repository %q, whose hooks could not be read: %v", s.gitDir, cause(err))
	}
	for _, h := range hooks {
		if !strings.HasSuffix(h.Name(), ".sample") {
			return bad("remove that hook", "is in the bare repository %q, which has the hook %s", s.gitDir, h.Name())
		}
	}
	for _, name := range []string{"config.worktree", "objects/info/alternates", "info/attributes"} {
		if _, err := os.Lstat(join(s.gitDir, name)); err == nil {
			return bad("", "is in the bare repository %q, which has %s", s.gitDir, name)
		}
	}
	return nil
}

// namesPath reports whether git checkout would read text, given in dir of s, as
// the path of a file rather than a revision: it discards what was changed there.
func (s repoSubject) namesPath(text string) (bool, error) {
	if strings.HasPrefix(text, ":") || strings.ContainsAny(text, "*?[\\") {
		return true, nil
	}
	for _, prefix := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} {
		if checkRefName(prefix+text) != nil || prefix == "" && !strings.HasSuffix(text, "HEAD") {
			continue
		}
		found, err := s.hasRef(prefix + text)
		if err != nil || found {
			return false, err
		}
	}
	_, err := os.Lstat(s.dir.path + "/" + text)
	return err == nil, nil
}

// classOfGit returns the class of p as a part of a repository that its name does
// not show.
func classOfGit(p string, k act.Kind) string {
	if k.In(act.Mutate) && inGitShape(p) {
		return classLater
	}
	return ""
}
