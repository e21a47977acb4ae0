package hold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	maxTold   = 32      // commands that are told
	maxTried  = 100_000 // words that are looked for among files
	maxHooks  = 64      // files of one directory of hooks
	maxHook   = 64 << 10
	maxTops   = 8 // directories that a word may be relative to
	maxQuoted = 200
)

// interpreters run what their arguments name.
var interpreters = map[string]bool{
	"sh": true, "bash": true, "dash": true, "zsh": true, "ksh": true, "fish": true, ".": true, "source": true, "eval": true,
	"python": true, "python3": true, "node": true, "nodejs": true, "deno": true, "bun": true, "perl": true, "ruby": true, "php": true, "lua": true,
	"tsx": true, "ts-node": true, "xargs": true, "timeout": true, "nice": true,
}

// runners run what files of the directory that they are started in say.
var runners = map[string]bool{
	"make": true, "gmake": true, "ninja": true, "just": true, "task": true, "rake": true, "bundle": true, "npm": true, "npx": true, "pnpm": true,
	"pnpx": true, "yarn": true, "bunx": true, "lint-staged": true, "lefthook": true, "husky": true, "pre-commit": true, "overcommit": true, "tox": true,
	"nox": true, "poetry": true, "pipenv": true, "uv": true, "uvx": true, "hatch": true, "composer": true, "cargo": true, "go": true, "mvn": true, "gradle": true,
	"ant": true, "sbt": true, "mix": true, "dotnet": true, "mise": true, "nix": true, "nix-shell": true, "docker-compose": true,
}

// A command is a line that git runs, in one of tops.
type command struct {
	line string
	by   string // what names it, for people
	tops []string
	hook bool // the line is the text of a hook: much in it is not run
}

// run holds the files that the words of a command name, and tells if it may run others.
func (f *follower) run(c command) {
	// Of an alias, and of a helper, what follows "!" is for the shell.
	if f.words(&c, shell(strings.TrimPrefix(strings.TrimSpace(c.line), "!"), 0), 0) {
		f.tell(c.by, c.line)
	}
}

// words goes through the words of a command, which may change its directory. It reports
// whether not all can be followed.
func (f *follower) words(c *command, all []shWord, depth int) (more bool) {
	name := ""
	for i, w := range all {
		if w.first {
			name = path.Base(w.text)
			more = more || runners[name]
		}
		slash := strings.Contains(w.text, "/")
		runs := w.first || interpreters[name]
		switch {
		case w.assign == "PATH", w.opaque && (runs || (slash || name == "cd") && !c.hook):
			more = true
		case interpreters[name] && w.text == "-m":
			more = true // a module, by a name that is no path
		case name == "cd" && !w.first && !w.opaque:
			c.tops = under(c.tops, w.text)
		}
		if depth < maxNesting {
			more = f.words(c, w.inner, depth+1) || more
		}
		if w.opaque || w.text == "" {
			continue
		}
		f.word(c, w, runs, slash)
		if runs && !w.first && i > 0 && strings.ContainsAny(w.text, " \t\n;|&<>()$`") && depth < maxNesting {
			more = f.words(c, shell(w.text, 0), depth+1) || more // what sh -c and eval are given
		}
	}
	return more || len(all) >= maxWords
}

// word holds the file that a word names: a program by its path, also where it is not there
// yet, and what else is there. Of a hook's text only what is run counts.
func (f *follower) word(c *command, w shWord, runs, slash bool) {
	if !slash && (w.first || !runs) {
		return // it is looked for in the search path, or is no path
	}
	var missing []string
	there := false
	f.each(w.text, c.tops, func(p string) {
		if f.tried++; f.tried > maxTried {
			f.stop("configuration of git names too much")
			return
		}
		switch fi, err := os.Stat(p); {
		case err != nil:
			missing = append(missing, p)
		case fi.IsDir():
		case !c.hook || runs || fi.Mode()&0o111 != 0:
			there = true
			f.add(p, c.by)
		}
	})
	for _, p := range missing {
		if w.first && !c.hook && !there {
			f.add(p, c.by)
		}
	}
}

// under adds to tops what dir is in them.
func under(tops []string, dir string) []string {
	all := slices.Clone(tops)
	for _, t := range tops {
		if !path.IsAbs(dir) {
			t += "/" + dir
		} else {
			t = dir
		}
		if len(all) < maxTops && !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// tell remembers that not all which a command runs is known.
func (f *follower) tell(by, line string) {
	if f.told[by] || len(f.told) > maxTold {
		return
	}
	if f.told[by] = true; len(f.told) > maxTold {
		f.stop("configuration of git names too much")
		return
	}
	if len(line) > maxQuoted {
		line = line[:maxQuoted] + "…"
	}
	f.found = append(f.found, Led{Object: by, By: fmt.Sprintf("git runs %q outside of boxes: what of this tree that runs cannot all be followed, and is not held", line)})
}

// hooks holds what the hooks in dir run of the tree, which git starts in one of tops, and
// tells if that cannot all be followed. The hooks themselves are held with dir.
func (f *follower) hooks(dir string, tops []string) {
	key := dir + "\x00" + strings.Join(tops, "\x00")
	if len(tops) == 0 || f.scanned[key] {
		return
	}
	f.scanned[key] = true
	entries, err := f.entries(dir)
	if err != nil {
		return // as a rule it is not there
	}
	f.listed += len(entries)
	if len(entries) > maxHooks {
		f.stop(fmt.Sprintf("%s has more than %d files", dir, maxHooks))
		entries = entries[:maxHooks]
	}
	var unclear []string
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		if fi, err := os.Stat(p); err != nil || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 || strings.HasSuffix(p, ".sample") {
			continue // git does not run it
		}
		if f.hook(p, tops) {
			unclear = append(unclear, e.Name())
		}
	}
	if len(unclear) > 0 {
		f.tell("hooks in "+dir, strings.Join(unclear, ", "))
	}
}

// hook follows one hook. It reports whether not all that it runs can be followed.
func (f *follower) hook(p string, tops []string) bool {
	text, err := readHook(p)
	head, _, _ := strings.Cut(text, "\n")
	program := strings.Fields(strings.TrimPrefix(head, "#!"))
	if err != nil || !strings.HasPrefix(head, "#!") || len(program) == 0 {
		return true // a binary
	}
	name := path.Base(program[len(program)-1])
	if len(program) > 1 && path.Base(program[0]) != "env" {
		name = path.Base(program[0])
	}
	c := command{line: text, by: "the hook " + p, tops: tops, hook: true}
	if slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, name) {
		more := false
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			more = f.words(&c, shell(line, 0), 0) || more
		}
		return more
	}
	for _, w := range words(text) {
		if strings.Contains(w, "/") {
			f.word(&c, shWord{text: w}, false, true)
		}
	}
	return true
}

var errLong = errors.New("too long")

// readHook reads a hook without waiting.
func readHook(p string) (string, error) {
	file, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if fi, err := file.Stat(); err != nil || !fi.Mode().IsRegular() {
		return "", errors.Join(err, fs.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxHook+1))
	if len(text) > maxHook {
		err = errLong
	}
	return string(text), err
}
