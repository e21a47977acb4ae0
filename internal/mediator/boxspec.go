package mediator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// spec is the box of s: the workspace, what its entry names, what its program
// needs in order to run, and a cache of its own.
//
// Our own servers do what the gate decided, path by path, so they are not held
// from files that the host runs later; the others are. The one that has commands run
// has a channel, and nothing else.
func (b Boxes) spec(s Server) (sandbox.Spec, error) {
	argv, err := b.argv(s)
	if err != nil {
		return sandbox.Spec{}, err
	}
	if s.Ringfence.Builtin == builtinExec {
		return sandbox.Spec{Argv: argv, Profile: sandbox.ProfileServer, Dir: "/"}, nil
	}
	spec := sandbox.Spec{
		Argv: argv, Env: b.environment(s), Dir: b.Dir(s), Profile: sandbox.ProfileServer,
		Workspace:     sandbox.Workspace{Path: b.Workspace, Mode: sandbox.ReadWrite},
		LaterWritable: s.Ringfence.Builtin != "",
	}
	for _, p := range s.Ringfence.Paths {
		spec.ReadWrite = append(spec.ReadWrite, b.absolute(p))
	}
	spec.Network = b.network(s, argv[0])
	if s.Ringfence.Unboxed {
		return spec, nil
	}
	if s.Ringfence.Builtin != "" && b.Apart {
		spec.ReadOnly = append(spec.ReadOnly, b.Program)
	}
	if s.Ringfence.Builtin == "git" {
		spec.ReadOnly = append(spec.ReadOnly, b.gitNeeds(len(s.Ringfence.Hosts) > 0)...)
	}
	if s.Ringfence.Builtin == "" {
		spec.ReadOnly = append(spec.ReadOnly, b.codeOf(argv)...)
		read, write := b.named(argv[1:])
		spec.ReadOnly, spec.ReadWrite = append(spec.ReadOnly, read...), append(spec.ReadWrite, write...)
		if err := b.addCache(&spec, s.Name); err != nil {
			return sandbox.Spec{}, err
		}
	}
	spec.ReadOnly, spec.ReadWrite = b.distinct(spec.ReadOnly), b.distinct(spec.ReadWrite)
	return spec, b.confine(&spec, s)
}

// fetchesItself reports whether a program gets the server that it runs from the
// network.
func fetchesItself(program string) bool {
	return slices.Contains([]string{"npx", "pnpx", "bunx", "uvx", "pipx"}, filepath.Base(program))
}

// gitNeeds is what git reads of the person: who they are, and, if it may reach
// hosts, what they log in with.
func (b Boxes) gitNeeds(hosts bool) []string {
	names := []string{".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes"}
	if hosts {
		names = append(names, ".git-credentials", ".config/git/credentials", ".ssh")
	}
	var there []string
	for _, n := range names {
		if p := filepath.Join(b.Home, n); exists(p) {
			there = append(there, p)
		}
	}
	return there
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// codeOf is where the program of argv and the code that it is given lie, if that is
// not where programs of the system are: the directory of an installation or of a
// package, with its dependencies. Words that are data are no code, see named.
func (b Boxes) codeOf(argv []string) []string {
	var dirs []string
	for i, arg := range argv {
		if !filepath.IsAbs(arg) {
			continue
		}
		for _, p := range []string{arg, realOf(arg)} {
			fi, err := os.Stat(p)
			if err != nil || fi.IsDir() || ofSystem(p) || b.ofWorkspace(p) {
				continue
			}
			if marks := marksOf(p, i == 0 || fi.Mode()&0o111 != 0); marks != nil {
				dirs = append(dirs, b.installation(p, marks, i == 0)...)
			}
		}
	}
	return dirs
}

func realOf(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return real
}

// systemDirs hold what every box sees.
var systemDirs = []string{"/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/"}

func ofSystem(path string) bool {
	return slices.ContainsFunc(systemDirs, func(d string) bool { return strings.HasPrefix(path, d) })
}

func (b Boxes) ofWorkspace(path string) bool {
	return path == b.Workspace || strings.HasPrefix(path, strings.TrimSuffix(b.Workspace, "/")+"/")
}

// marks are the names that the root of a package, or of an installation, has, by the
// extension of code that belongs to one.
var marks = map[string][]string{
	".js": nodeMarks, ".mjs": nodeMarks, ".cjs": nodeMarks, ".ts": nodeMarks, ".mts": nodeMarks, ".cts": nodeMarks,
	".py": pythonMarks, ".pyz": pythonMarks, ".pyw": pythonMarks,
}

var (
	nodeMarks   = []string{"package.json", "node_modules"}
	pythonMarks = []string{"pyproject.toml", "pyvenv.cfg"}
	anyMarks    = slices.Concat(nodeMarks, pythonMarks, []string{"go.mod", "Cargo.toml"})
)

// marksOf returns what marks the package of the file at path, or nil if it is no code.
func marksOf(path string, executable bool) []string {
	if m, ok := marks[filepath.Ext(path)]; ok {
		return m
	}
	if executable {
		return anyMarks
	}
	return nil
}

// installation returns what code at path needs: the nearest directory above it that is
// a package or an installation, else the file alone; and what that one is installed in,
// which is where its dependencies are. What has a mark further up shows nothing of
// itself: a stray package.json above all projects of a person is no reason to show them.
//
// It is never the home of the person, what is above it, or a directory in which
// programs keep data.
func (b Boxes) installation(path string, marks []string, program bool) []string {
	best := b.nearest(filepath.Dir(path), marks)
	switch dir := filepath.Dir(path); {
	case best == "" && program && filepath.Base(dir) == "bin" && b.mayShow(filepath.Dir(dir)):
		return []string{filepath.Dir(dir)}
	case best == "":
		return []string{path}
	}
	if exists(filepath.Join(best, "pyvenv.cfg")) && exists(filepath.Join(filepath.Dir(best), "pyproject.toml")) && b.mayShow(filepath.Dir(best)) {
		best = filepath.Dir(best)
	}
	// Node looks for dependencies in every "node_modules" above.
	for {
		project, _, found := cutLast(best, "/node_modules/")
		if !found || !b.mayShow(project) {
			break
		}
		best = project
	}
	all := []string{best}
	for dir := filepath.Dir(best); b.mayShow(dir); dir = filepath.Dir(dir) {
		if d := filepath.Join(dir, "node_modules"); slices.Contains(marks, "node_modules") && exists(d) {
			all = append(all, d)
		}
	}
	return all
}

// nearest returns dir, or the nearest directory above it, that has one of marks; "" if
// none may be shown.
func (b Boxes) nearest(dir string, marks []string) string {
	for ; b.mayShow(dir); dir = filepath.Dir(dir) {
		if slices.ContainsFunc(marks, func(m string) bool { return exists(filepath.Join(dir, m)) }) {
			return dir
		}
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// mayShow reports whether a directory may be shown whole because code lies in it.
func (b Boxes) mayShow(dir string) bool {
	if dir == "/" || filepath.Dir(dir) == "/" || dir == b.Home || strings.HasPrefix(b.Home, dir+"/") {
		return false
	}
	rel, err := filepath.Rel(b.Home, dir)
	return err != nil || !slices.Contains([]string{".local", ".config", ".cache", ".local/share", ".ssh", "snap"}, rel)
}

// named is what the words of a command name of the file system: a directory is what
// the server works on, a file what it reads.
func (b Boxes) named(words []string) (read, write []string) {
	for _, w := range words {
		if _, value, found := strings.Cut(w, "="); found && strings.HasPrefix(w, "-") {
			w = value
		}
		if !filepath.IsAbs(w) || ofSystem(w) || b.ofWorkspace(w) || filepath.Clean(w) == "/" {
			continue
		}
		fi, err := os.Stat(w)
		switch {
		case err != nil:
		case fi.IsDir():
			write = append(write, filepath.Clean(w))
		case fi.Mode().IsRegular():
			read = append(read, filepath.Clean(w))
		}
	}
	return read, write
}

// addCache gives the server a directory that survives it, where the usual package
// runners keep what they fetched.
func (b Boxes) addCache(spec *sandbox.Spec, name string) error {
	if b.Cache == "" {
		return nil
	}
	dir := filepath.Join(b.Cache, name)
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making its cache: %w", err)
	}
	spec.ReadWrite = append(spec.ReadWrite, dir)
	for _, v := range []string{"npm_config_cache=" + filepath.Join(dir, "npm"), "UV_CACHE_DIR=" + filepath.Join(dir, "uv"), "XDG_CACHE_HOME=" + dir} {
		key, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") }) {
			spec.Env = append(spec.Env, v)
		}
	}
	return nil
}

// distinct drops what is named twice.
func (b Boxes) distinct(paths []string) []string {
	slices.Sort(paths)
	return slices.Compact(paths)
}
