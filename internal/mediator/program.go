package mediator

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what a server's program is known by.
const (
	maxProgram  = 512 << 20 // bytes of one file
	maxLocks    = 32        // packages that its runner has fetched
	maxScripts  = 48
	packageLock = ".package-lock.json"
	fetchedDir  = "_npx" // where npm keeps what npx has fetched
)

// runtimes are programs that run another file, which they are given first.
var runtimes = []string{"node", "bun", "deno", "tsx", "python", "pypy", "ruby", "perl", "bash", "sh", "dash", "zsh", "java", "php", "lua"}

// code are the extensions of files that are run, whatever is told to run them.
var code = []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".py", ".pyz", ".pyw", ".rb", ".pl", ".sh", ".bash", ".jar", ".php", ".lua", ".wasm"}

// entrances are what a runtime runs of a directory that it is given.
var entrances = []string{"package.json", "index.js", "index.mjs", "index.ts", "__main__.py", "main.py"}

// Identity returns what s would run, a line for each file, "sha256:… path", in order: its
// program, the files of code that its command names, in the words of a shell too, and what
// is installed with them, or what its runner of packages has fetched. Programs of the
// machine and our own are left out, and what a program finds by itself, such as a module of
// Python that is named, is not known; so nil says that nothing is known by which a change
// would show.
func (b Boxes) Identity(s Server) ([]string, error) {
	if s.Ringfence.Builtin != "" || s.Remote() {
		return nil, nil
	}
	argv, err := b.Argv(s)
	if err != nil {
		return nil, err
	}
	files := []string{argv[0]}
	for _, script := range b.scripts(s, argv) {
		files = append(files, script)
		if lock := lockOf(script); lock != "" {
			files = append(files, lock)
		}
	}
	if b.Cache != "" {
		locks, err := filepath.Glob(filepath.Join(b.Cache, s.Name, "npm", fetchedDir, "*", "node_modules", packageLock))
		if err != nil {
			return nil, fmt.Errorf("finding the packages of server %s: %w", s.Name, err)
		}
		files = append(files, locks[:min(len(locks), maxLocks)]...)
	}
	var lines []string
	for _, f := range files {
		line, err := identity(f)
		if err != nil {
			return nil, fmt.Errorf("looking at the program of server %s: %w", s.Name, err)
		}
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines[:min(len(lines), maxScripts)], nil
}

// scripts are the files of code that the words of argv name, and what a runtime is given
// first, whatever it is called.
func (b Boxes) scripts(s Server, argv []string) []string {
	var found []string
	runs := isRuntime(argv[0])
	for _, word := range argv[1:] {
		if isRuntime(word) {
			runs = true // "env python3 x"
			continue
		}
		flag := strings.HasPrefix(word, "-")
		for _, part := range strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune(" \t\n\"';&|()=", r) }) {
			files := b.codeAt(s, part, runs && !flag)
			if len(files) > 0 && !flag {
				runs = false
			}
			found = append(found, files...)
		}
	}
	return found[:min(len(found), maxScripts)]
}

// isRuntime reports whether word is a runtime, perhaps with its version: "python3.11".
func isRuntime(word string) bool {
	return slices.Contains(runtimes, strings.TrimRight(filepath.Base(word), ".0123456789"))
}

// codeAt are the files at word that are code: what a runtime is given is, all else by its
// name or its mode.
func (b Boxes) codeAt(s Server, word string, given bool) []string {
	if word == "" {
		return nil
	}
	if !filepath.IsAbs(word) {
		word = filepath.Join(b.Dir(s), word)
	}
	fi, err := os.Stat(word)
	switch {
	case err != nil:
		return nil
	case fi.IsDir() && given:
		var files []string
		for _, name := range entrances {
			if file := filepath.Join(word, name); exists(file) {
				files = append(files, file)
			}
		}
		return files
	case fi.Mode().IsRegular() && (given || fi.Mode()&0o111 != 0 || slices.Contains(code, strings.ToLower(filepath.Ext(word)))):
		return []string{word}
	}
	return nil
}

// SameProgram reports whether a server that was known by the lines before is known by the
// lines now. What a runner has fetched is not there before it has run for the first time.
func SameProgram(before, now []string) bool {
	own, fetched := split(before)
	ownNow, fetchedNow := split(now)
	return slices.Equal(own, ownNow) && (len(fetched) == 0 || len(fetchedNow) == 0 || slices.Equal(fetched, fetchedNow))
}

// split parts lines into those of a program and those of what its runner has fetched.
func split(lines []string) (own, fetched []string) {
	for _, l := range lines {
		if strings.Contains(l, "/"+fetchedDir+"/") {
			fetched = append(fetched, l)
		} else {
			own = append(own, l)
		}
	}
	return own, fetched
}

// lockOf is what npm notes of the packages that are installed around script, "" if it is
// in no node_modules.
func lockOf(script string) string {
	dir, _, found := strings.Cut(script, "/node_modules/")
	if !found {
		return ""
	}
	return filepath.Join(dir, "node_modules", packageLock)
}

// identity is the line of one file; "" for one of the machine, or that is not there.
func identity(file string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if ofSystem(real) { // it changes when the machine is updated, which nobody should be asked about
		return "", nil
	}
	if fi, err := os.Stat(real); err != nil || !fi.Mode().IsRegular() { // opening a FIFO waits
		return "", errors.Join(fmt.Errorf("%s is no file", real), err)
	}
	f, err := os.Open(real)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", errors.Join(fmt.Errorf("%s is no file", real), err)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxProgram+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", real, err)
	}
	if n > maxProgram {
		return "", fmt.Errorf("%s has more than %d bytes", real, maxProgram)
	}
	return fmt.Sprintf("sha256:%x %s", h.Sum(nil), file), nil
}

// unchanged returns an error if s is not started from what it was known by: it may be
// started long after that was looked up, and again.
func (b Boxes) unchanged(s Server) error {
	before, looked := b.Known[s.Name]
	if !looked {
		return nil
	}
	now, err := b.Identity(s)
	if err != nil {
		return err
	}
	if !SameProgram(before, now) {
		return &BlockedError{"its program was changed after this session began, so it is not started; start the client again, and a person can look at the difference"}
	}
	return nil
}
