package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxPath = 4096
	maxFile = 1 << 20 // bytes of a file of git's that we read ourselves
)

// A repo is a repository that a call is about, found without git: what git would
// follow (links, core.worktree, a common directory elsewhere) is checked first and
// then told to git by the environment.
type repo struct {
	s        *server
	dir      string   // what was named
	top      string   // the work tree, "" if there is none
	gitDir   string   // HEAD, index
	common   string   // config, objects, refs
	config   config   // the repository's own
	settings []string // options before the subcommand, of harden
}

// home is where git runs.
func (r *repo) home() string {
	if r.top != "" {
		return r.top
	}
	return r.gitDir
}

// places are the directories that git needs.
func (r *repo) places() []string {
	all := []string{r.home()}
	for _, d := range []string{r.gitDir, r.common} {
		if !within(r.home(), d) {
			all = append(all, d)
		}
	}
	return all
}

// open finds the repository that path is in and reads its configuration. An empty
// path and "." are what git_set_working_dir set.
func (s *server) open(ctx context.Context, path string) (*repo, error) {
	dir, err := s.existing(path)
	if err != nil {
		return nil, err
	}
	r := &repo{s: s, dir: dir}
	if err := r.find(); err != nil {
		return nil, err
	}
	if r.config, err = s.readConfigs(ctx, r.gitDir, r.common); err != nil {
		return nil, err
	}
	if err := r.checkWorkTree(); err != nil {
		return nil, err
	}
	if err := r.checkAlternates(); err != nil {
		return nil, err
	}
	return r, r.harden(ctx)
}

// absolute returns path as an absolute one.
func (s *server) absolute(path string) (string, error) {
	switch {
	case len(path) > maxPath:
		return "", fmt.Errorf("path has %d bytes, at most %d are possible", len(path), maxPath)
	case strings.IndexByte(path, 0) >= 0:
		return "", errors.New("path holds a NUL")
	case strings.HasPrefix(path, "~"):
		return "", fmt.Errorf("%s: there is no home directory here; give the absolute path", path)
	case strings.HasPrefix(path, "-"):
		return "", fmt.Errorf("%s: a path must not begin with \"-\"; write ./%[1]s", path)
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(s.workingDir(), path), nil
}

func (s *server) workingDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		return s.dir
	}
	return s.roots[0]
}

// existing returns the real path of a directory beneath the roots.
func (s *server) existing(path string) (string, error) {
	abs, err := s.absolute(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("%s: %w", abs, reason(err))
	}
	if err := s.allowed(real); err != nil {
		return "", err
	}
	if fi, err := os.Stat(real); err != nil || !fi.IsDir() {
		return "", fmt.Errorf("%s is not a directory", real)
	}
	return real, nil
}

// fresh returns the real path of something that may not exist yet, beneath the
// roots: links in the part that exists are resolved.
func (s *server) fresh(path string) (string, error) {
	abs, err := s.absolute(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := abs; ; {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			real = filepath.Join(real, rest)
			return real, s.allowed(real)
		}
		if _, lerr := os.Lstat(at); lerr == nil || !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return "", fmt.Errorf("%s: %w", abs, reason(err))
		}
		at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest)
	}
}

func (s *server) allowed(real string) error {
	for _, r := range s.roots {
		if within(r, real) {
			return nil
		}
	}
	return fmt.Errorf("access denied - %s is not in %s", real, strings.Join(s.roots, ", "))
}

// within reports whether p is top or beneath it. Both are clean.
func within(top, p string) bool {
	return p == top || strings.HasPrefix(p, strings.TrimSuffix(top, "/")+"/")
}

// find looks for the repository from dir upwards, within the roots.
func (r *repo) find() error {
	for d := r.dir; r.s.allowed(d) == nil; d = filepath.Dir(d) {
		found, err := r.at(d)
		if err != nil || found {
			return err
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return fmt.Errorf("%s is not in a git repository; git_init creates one", r.dir)
}

func (r *repo) at(d string) (bool, error) {
	dot := filepath.Join(d, ".git")
	fi, err := os.Lstat(dot)
	switch {
	case err == nil && fi.Mode()&fs.ModeSymlink != 0:
		return false, fmt.Errorf("%s is a symbolic link, which is not followed", dot)
	case err == nil && fi.Mode().IsRegular():
		return true, r.linked(d, dot)
	case err == nil && fi.IsDir() && isGitDir(dot):
		r.top, r.gitDir, r.common = d, dot, dot
		return true, r.checkPlain()
	case isGitDir(d) && filepath.Base(d) == ".git":
		return false, fmt.Errorf("%s is the inside of a repository; name its work tree", d)
	case isGitDir(d):
		r.gitDir, r.common = d, d
		return true, r.checkPlain()
	}
	return false, nil
}

// isGitDir is git's test (setup.c, is_git_directory).
func isGitDir(d string) bool {
	if _, err := os.Lstat(filepath.Join(d, "HEAD")); err != nil {
		return false
	}
	for _, n := range []string{"objects", "refs"} {
		if fi, err := os.Stat(filepath.Join(d, n)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

func (r *repo) checkPlain() error {
	if _, err := os.Lstat(filepath.Join(r.gitDir, "commondir")); err == nil {
		return fmt.Errorf("%s leads git to another repository by its file commondir", r.gitDir)
	}
	return nil
}

// linked follows the .git file of a linked work tree or a submodule, if what it
// leads to is within the roots and leads back.
func (r *repo) linked(top, file string) error {
	target, err := readLink(file, "gitdir: ", top)
	if err != nil {
		return err
	}
	if err := r.s.allowed(target); err != nil {
		return fmt.Errorf("%s leads elsewhere: %w", file, err)
	}
	r.top, r.gitDir, r.common = top, target, target
	if filepath.Base(filepath.Dir(target)) != "worktrees" {
		// A submodule: its configuration says where its work tree is, see checkWorkTree.
		if !isGitDir(target) {
			return fmt.Errorf("%s leads to %s, which is no repository", file, target)
		}
		return nil
	}
	r.common = filepath.Dir(filepath.Dir(target))
	back, err := readLink(filepath.Join(target, "gitdir"), "", target)
	if err != nil || back != file {
		return fmt.Errorf("%s leads to %s, which does not lead back", file, target)
	}
	common, err := readLink(filepath.Join(target, "commondir"), "", target)
	if err != nil || common != r.common || !isGitDir(r.common) {
		return fmt.Errorf("%s leads to %s, whose repository is elsewhere", file, target)
	}
	return nil
}

// readLink reads a file that holds prefix and a path, and returns the real path;
// relative ones start at base.
func readLink(file, prefix, base string) (string, error) {
	b, err := readSmall(file)
	if err != nil {
		return "", err
	}
	p, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), prefix)
	if !ok || p == "" || len(p) > maxPath {
		return "", fmt.Errorf("%s does not hold a path", file)
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(base, p)
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p, reason(err))
	}
	return real, nil
}

func readSmall(name string) ([]byte, error) {
	if fi, err := os.Lstat(name); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return b, err
}

// checkWorkTree refuses a core.worktree that is not the work tree we found: git
// would write, and clean, there.
func (r *repo) checkWorkTree() error {
	submodule := r.top != "" && r.common == r.gitDir && r.gitDir != filepath.Join(r.top, ".git")
	tree, ok := r.config.last("core", "", "worktree")
	if !ok && submodule {
		return fmt.Errorf("%s is not the repository of %s", r.gitDir, r.top)
	}
	if !ok {
		return nil
	}
	if !filepath.IsAbs(tree) {
		tree = filepath.Join(r.gitDir, tree)
	}
	if real, err := filepath.EvalSymlinks(tree); err != nil || real != r.top {
		return fmt.Errorf("core.worktree of %s leads to %s; remove that setting", r.gitDir, tree)
	}
	return nil
}

// checkAlternates refuses objects that are kept outside the roots.
func (r *repo) checkAlternates() error {
	for _, name := range []string{"alternates", "http-alternates"} {
		b, err := readSmall(filepath.Join(r.common, "objects", "info", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading where objects are kept: %w", reason(err))
		}
		for p := range strings.Lines(string(b)) {
			p = strings.TrimRight(p, "\r\n")
			if p == "" || p[0] == '#' {
				continue
			}
			if !filepath.IsAbs(p) {
				p = filepath.Join(r.common, "objects", p)
			}
			real, err := filepath.EvalSymlinks(p)
			if err != nil || r.s.allowed(real) != nil {
				return fmt.Errorf("objects of %s are kept in %s, outside of what may be read", r.common, p)
			}
		}
	}
	return nil
}

// reason returns err without the paths that package os puts before it.
func reason(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
