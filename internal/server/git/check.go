package git

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// word refuses what git could read as an option, and what no name of git's has.
func word(arg, v string) error {
	switch {
	case v == "":
		return fmt.Errorf("%s is required", arg)
	case v[0] == '-':
		return fmt.Errorf("%s is %q: a value must not begin with \"-\"", arg, v)
	case len(v) > 2048:
		return fmt.Errorf("%s has %d bytes, at most 2048 are possible", arg, len(v))
	case strings.ContainsFunc(v, control):
		return fmt.Errorf("%s is %q: it must not hold control characters", arg, v)
	}
	return nil
}

func control(c rune) bool { return c < ' ' || c == 0x7f }

// option is word for arguments that may be absent.
func option(arg, v string) error {
	if v == "" {
		return nil
	}
	return word(arg, v)
}

// branchName returns v as the name of a branch or tag, without "refs/heads/" or the
// prefix given. The rules are those of git-check-ref-format(1).
func branchName(arg, v, prefix string) (string, error) {
	if err := word(arg, v); err != nil {
		return "", err
	}
	name := strings.TrimPrefix(v, prefix)
	bad := name == "@" || name == "" || strings.ContainsAny(name, " ~^:?*[\\") || strings.Contains(name, "..") ||
		strings.Contains(name, "@{") || strings.HasSuffix(name, ".") || name[0] == '-'
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return "", fmt.Errorf("%s is %q, which cannot be the name of a branch or tag", arg, v)
	}
	return name, nil
}

const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
)

// between refuses a number outside of [low, high]; 0 stands for an absent one and
// becomes byDefault.
func between(arg string, v *int, byDefault, low, high int) (int, error) {
	if v == nil {
		return byDefault, nil
	}
	if *v < low || *v > high {
		return 0, fmt.Errorf("%s is %d, must be between %d and %d", arg, *v, low, high)
	}
	return *v, nil
}

// oneOf refuses a value that is not among valid; "" becomes the first.
func oneOf(arg, v string, valid ...string) (string, error) {
	if v == "" {
		return valid[0], nil
	}
	if !slices.Contains(valid, v) {
		return "", fmt.Errorf("%s is %q, must be one of %s", arg, v, strings.Join(valid, ", "))
	}
	return v, nil
}

// maxPaths is how many paths a call may name.
const maxPaths = 10_000

// relative returns path, which starts at the directory that was named, relative to
// the work tree.
func (r *repo) relative(arg, path string) (string, error) {
	if err := word(arg, path); err != nil {
		return "", err
	}
	if len(path) > maxPath {
		return "", fmt.Errorf("%s has %d bytes, at most %d are possible", arg, len(path), maxPath)
	}
	abs := path
	if !filepath.IsAbs(path) {
		abs = filepath.Join(r.dir, path)
	}
	rel, err := filepath.Rel(r.home(), filepath.Clean(abs))
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("%s is %q, which is not in %s", arg, path, r.home())
	}
	return rel, nil
}

// pathspecs returns "--" and the paths, so that git takes each for exactly the file
// or directory of that name.
func (r *repo) pathspecs(arg string, paths []string) ([]string, error) {
	if len(paths) > maxPaths {
		return nil, fmt.Errorf("%s names %d paths, at most %d are possible", arg, len(paths), maxPaths)
	}
	specs := []string{"--"}
	for _, p := range paths {
		rel, err := r.relative(arg, p)
		if err != nil {
			return nil, err
		}
		if rel == "." {
			specs = append(specs, ":(top)")
			continue
		}
		specs = append(specs, ":(top,literal)"+rel)
	}
	return specs, nil
}

// protected are the branches whose history others rely on by convention; what would
// lose some of it must be confirmed.
var protected = []string{"main", "master", "production", "prod", "develop", "dev", "staging", "release"}

func confirm(what, branch string, confirmed bool) error {
	if slices.Contains(protected, branch) && !confirmed {
		return fmt.Errorf("cannot perform %s on protected branch '%s' without explicit confirmation; set confirmed", what, branch)
	}
	return nil
}

// when returns words if cond.
func when(cond bool, words ...string) []string {
	if cond {
		return words
	}
	return nil
}
