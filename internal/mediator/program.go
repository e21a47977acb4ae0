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
	packageLock = ".package-lock.json"
)

// runtimes are programs that run another file, which they are given first.
var runtimes = []string{"node", "bun", "deno", "tsx", "python", "python3", "ruby", "perl", "bash", "sh", "java"}

// Identity returns what s would run, a line for each file, "sha256:… path", in order: its
// program, the file that a runtime is given, and what is installed with that, or what its
// runner of packages has fetched. Programs of the machine and our own are left out; so
// nil says that nothing is known by which a change would show.
func (b Boxes) Identity(s Server) ([]string, error) {
	if s.Ringfence.Builtin != "" || s.Remote() {
		return nil, nil
	}
	argv, err := b.Argv(s)
	if err != nil {
		return nil, err
	}
	files := []string{argv[0]}
	if script := b.script(s, argv); script != "" {
		files = append(files, script)
		if lock := lockOf(script); lock != "" {
			files = append(files, lock)
		}
	}
	if b.Cache != "" {
		locks, err := filepath.Glob(filepath.Join(b.Cache, s.Name, "npm", "_npx", "*", "node_modules", packageLock))
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
	return lines, nil
}

// script is the file that a runtime is given, "" if there is none.
func (b Boxes) script(s Server, argv []string) string {
	name := strings.TrimRight(filepath.Base(argv[0]), ".0123456789")
	if !slices.Contains(runtimes, name) && !slices.Contains(runtimes, filepath.Base(argv[0])) {
		return ""
	}
	for _, word := range argv[1:] {
		if strings.HasPrefix(word, "-") || word == "run" {
			continue
		}
		if !filepath.IsAbs(word) {
			word = filepath.Join(b.Dir(s), word)
		}
		if fi, err := os.Stat(word); err == nil && fi.Mode().IsRegular() {
			return word
		}
		return ""
	}
	return ""
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
	f, err := os.Open(real)
	if err != nil {
		return "", err
	}
	defer f.Close()
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
