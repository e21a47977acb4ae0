package resolve

import (
	"io/fs"
	"os"
	"path"
	"strings"

	"ringfence/internal/act"
)

// A repoSubject is a git repository, found the way git finds it.
type repoSubject struct {
	view   View
	dir    place  // what was named
	top    string // the work tree, or the repository itself if it is bare
	owner  string // the work tree or bare repository that keeps the objects, if another; else ""
	gitDir string // HEAD; "" if there is no repository
	common string // config, refs
	isNew  bool
}

func (v View) repoResource(p string, isNew bool) act.Resource {
	facts := map[string]any{}
	if isNew {
		facts[act.FactNewRepo] = true
	}
	if c := v.classOfPath(place{path: p}, act.Read, false); c == classOwn {
		facts[act.FactClass] = c
	}
	if len(facts) == 0 {
		facts = nil
	}
	return act.Resource{Type: act.Repo, Text: "repo:" + p, Facts: facts}
}

// real is the directory that was named: what is relative to it stays so.
func (s repoSubject) real() (string, bool) { return s.dir.path, true }

// on returns effects on the repository. What changes a linked work tree changes
// the repository it belongs to. For kinds on a Path, with tree, they are on the
// work tree, without it on the configuration, which says what git runs and where
// remotes are.
func (s repoSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	switch k.On() {
	case act.Path:
		name := s.top
		if !tree {
			name = join(s.common, "config")
		}
		if !tree && s.common == "" {
			name = join(s.top, ".git/config")
		}
		p, err := follow(name)
		if err != nil {
			return nil, err
		}
		return pathSubject{s.view, p}.on(k, tree)
	case act.Repo:
		effects := one(k, s.view.repoResource(s.top, s.isNew), tree)
		if s.owner != "" {
			effects = append(effects, one(k, s.view.repoResource(s.owner, false), tree)...)
		}
		return effects, nil
	default:
		return nil, noEffect(k, "repository")
	}
}

// repo finds the repository that text lies in.
func (v View) repo(text, base string) (repoSubject, error) {
	p, err := v.place(text, base)
	if err != nil {
		return repoSubject{}, err
	}
	s := repoSubject{view: v, dir: p, top: p.path}
	start := p.path
	if !p.dir() {
		if start = path.Dir(start); p.missing > 0 {
			s.isNew = true
			return s, nil
		}
	}
	for d := start; ; d = path.Dir(d) {
		found, err := s.at(d)
		if err != nil || found {
			return s, err
		}
		if d == "/" {
			s.isNew = true
			return s, nil
		}
	}
}

// at looks for a repository whose top is d.
func (s *repoSubject) at(d string) (bool, error) {
	git := join(d, ".git")
	info, err := os.Lstat(git)
	switch {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		return false, bad("", "is in a work tree whose %q is a link, which is not followed", git)
	case info.Mode().IsRegular():
		return true, s.linked(d, git)
	case info.IsDir():
		if is, err := isGitDir(git); is || err != nil {
			s.top, s.gitDir, s.common = d, git, git
			return is, firstError(err, s.checkPlain)
		}
	}
	is, err := isGitDir(d)
	if !is {
		return false, err
	}
	s.top, s.gitDir, s.common = d, d, d
	return true, firstError(s.checkPlain(), s.checkBare)
}

// firstError returns err, or else what next returns.
func firstError(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// checkPlain refuses a repository that leads git elsewhere.
func (s *repoSubject) checkPlain() error {
	if _, err := os.Lstat(join(s.gitDir, "commondir")); err == nil {
		return bad("", "is in a repository that leads git to another one by %q", join(s.gitDir, "commondir"))
	}
	c, err := readGitConfig(join(s.common, "config"))
	if err != nil {
		return err
	}
	return s.checkWorkTree(c, s.top)
}

// checkWorkTree refuses a core.worktree that is not want.
func (s *repoSubject) checkWorkTree(c gitConfig, want string) error {
	tree, ok := c.get("core", "", "worktree")
	if !ok {
		return nil
	}
	if !strings.HasPrefix(tree, "/") {
		tree = s.gitDir + "/" + tree
	}
	if p, err := follow(tree); err != nil || p.path != want {
		return bad("", "is in a repository whose core.worktree leads to %q", tree)
	}
	return nil
}

// linked follows the .git file of a linked work tree or a submodule, if what it
// leads to leads back.
func (s *repoSubject) linked(top, file string) error {
	b, err := readBounded(file, maxPath+16)
	if err != nil {
		return err
	}
	target, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), "gitdir: ")
	if !ok || target == "" {
		return bad("", "is in a work tree whose %q is no git file", file)
	}
	if !strings.HasPrefix(target, "/") {
		target = top + "/" + target
	}
	dir, err := follow(target)
	if err != nil {
		return err
	}
	s.top, s.gitDir = top, dir.path
	if path.Base(path.Dir(dir.path)) == "worktrees" {
		return s.linkedTree(file)
	}
	return s.submodule()
}

// linkedTree checks the two links of a work tree: gitdir back to it, and
// commondir to the repository that holds it.
func (s *repoSubject) linkedTree(file string) error {
	refuse := bad("", "is in a work tree whose %q leads to %q, which does not lead back", file, s.gitDir)
	s.common = path.Dir(path.Dir(s.gitDir))
	back, err := readBounded(join(s.gitDir, "gitdir"), maxPath+16)
	if err != nil {
		return err
	}
	b := strings.TrimRight(string(back), "\r\n")
	if !strings.HasPrefix(b, "/") {
		b = s.gitDir + "/" + b
	}
	if p, err := follow(b); err != nil || p.path != file {
		return refuse
	}
	common, err := readBounded(join(s.gitDir, "commondir"), maxPath+16)
	if err != nil {
		return err
	}
	c := strings.TrimRight(string(common), "\r\n")
	if !strings.HasPrefix(c, "/") {
		c = s.gitDir + "/" + c
	}
	if p, err := follow(c); err != nil || p.path != s.common {
		return refuse
	}
	if is, err := isGitDir(s.common); !is || err != nil {
		return refuse
	}
	s.owner = s.common
	if path.Base(s.common) == ".git" {
		s.owner = path.Dir(s.common)
	}
	return nil
}

// submodule checks that the git directory is kept by a work tree around this one
// and says that this is its work tree.
func (s *repoSubject) submodule() error {
	s.common = s.gitDir
	around, _, ok := strings.Cut(s.gitDir, "/.git/modules/")
	if !ok || !beneath(s.top, around) || s.top == around {
		return bad("", "is in a work tree whose git file leads to %q, which is no submodule around it", s.gitDir)
	}
	c, err := readGitConfig(join(s.common, "config"))
	if err != nil {
		return err
	}
	if _, ok := c.get("core", "", "worktree"); !ok {
		return bad("", "is in a work tree whose git file leads to %q, which does not lead back", s.gitDir)
	}
	return s.checkWorkTree(c, s.top)
}

// head returns the ref that HEAD names, "" if it is detached or unknown.
func (s repoSubject) head() (string, error) {
	if s.gitDir == "" {
		return "", nil
	}
	b, err := readBounded(join(s.gitDir, "HEAD"), maxPath)
	if err != nil {
		return "", err
	}
	ref, ok := strings.CutPrefix(strings.TrimRight(string(b), " \t\r\n"), "ref:")
	ref = strings.TrimLeft(ref, " \t")
	if ok && checkRefName(ref) == nil {
		return ref, nil
	}
	return "", nil
}

// hasRef reports whether the repository has the ref, loose or packed.
func (s repoSubject) hasRef(ref string) (bool, error) {
	if s.common == "" {
		return false, nil
	}
	if info, err := os.Lstat(join(s.common, ref)); err == nil && info.Mode().IsRegular() {
		return true, nil
	}
	b, err := readBounded(join(s.common, "packed-refs"), maxPacked)
	return strings.Contains(string(b), " "+ref+"\n"), err
}

// config returns the configuration that git reads in the repository. In the
// repository's own no include is accepted.
func (s repoSubject) config() (gitConfig, error) {
	c, err := s.view.globalConfig()
	if err != nil || s.common == "" {
		return c, err
	}
	own, err := readGitConfig(join(s.common, "config"))
	if err != nil {
		return nil, err
	}
	if own.isTrue("extensions", "", "worktreeconfig") {
		more, err := readGitConfig(join(s.gitDir, "config.worktree"))
		if err != nil {
			return nil, err
		}
		own = append(own, more...)
	}
	for i := range own {
		if strings.HasPrefix(own[i].section, "include") {
			return nil, bad("write the URL of the remote", "is in a repository whose configuration includes another file, which is not followed")
		}
	}
	return append(c, own...), nil
}

// globalConfig returns the configuration of the machine and of the person.
func (v View) globalConfig() (gitConfig, error) {
	var all gitConfig
	for _, name := range []string{"/etc/gitconfig", v.Home + "/.config/git/config", v.Home + "/.gitconfig"} {
		c, err := readGitConfig(name)
		if err != nil {
			return nil, err
		}
		for i := range c {
			if strings.HasPrefix(c[i].section, "include") && c[i].key == "path" {
				if err := v.harmless(c[i].value, path.Dir(name), 0); err != nil {
					return nil, err
				}
			}
		}
		all = append(all, c...)
	}
	return all, nil
}

// maxIncludes is how deep git follows includes.
const maxIncludes = 10

// harmless refuses an included file that could say where a remote is: whether
// its condition holds is not known here.
func (v View) harmless(name, dir string, depth int) error {
	switch {
	case strings.HasPrefix(name, "~/"):
		name = v.Home + name[1:]
	case !strings.HasPrefix(name, "/"):
		name = dir + "/" + name
	}
	c, err := readGitConfig(name)
	if err != nil {
		return err
	}
	for i := range c {
		switch s := &c[i]; {
		case s.section == "url", s.section == "remote", s.section == "branch", s.section == "push":
			return bad("write the URL of the remote, or move the setting", "depends on %q (line %d), which git's configuration includes", name, s.line)
		case strings.HasPrefix(s.section, "include") && s.key == "path":
			if depth == maxIncludes {
				return bad("", "depends on git configuration that includes too deeply, at %q", name)
			}
			if err := v.harmless(s.value, path.Dir(name), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
