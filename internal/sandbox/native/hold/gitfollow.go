package hold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ringfence/internal/act/places"
)

const (
	maxConfig       = 1 << 20 // bytes of a configuration of git
	maxNested       = 10      // configurations that include each other (MAX_INCLUDE_DEPTH of git's config.c)
	maxFiles        = 4_096   // files of configuration
	maxSettings     = 20_000  // settings of one configuration, with what it includes
	maxRepositories = 1_000
	maxWalked       = 50_000 // entries of directories that are looked at for repositories
	maxPointer      = 8 << 10
	levels          = 32     // of directories in which repositories are looked for
	maxApplied      = 20_000 // settings that are held against directories, in all
	gitPrefix       = "/usr"
)

// A setting is one line of git's configuration: "section.key", or
// "section.subsection.key".
type setting struct {
	key, value string
	in         string // the file
}

// A repository is one that was found: its own directory, the one that it shares with
// its further work trees, and these, which what is relative is relative to. It has none
// if it is bare.
type repository struct {
	dir, common string
	tops        []string
}

// git follows what git is told in the repositories that root is in, or that are in it.
func (f *follower) git(root string, global []string) {
	f.repositories = map[string]bool{}
	var everywhere []setting
	for _, name := range global {
		everywhere = f.load(everywhere, name, 0)
	}
	f.apply(everywhere, nil)
	for dir := root; ; dir = path.Dir(dir) {
		f.repository(dir, everywhere)
		if dir == "/" || dir == "." {
			break
		}
	}
	f.within(root, everywhere)
	f.installed(everywhere)
}

// link holds what a link leads to whose name is held, or is within what is held.
func (f *follower) link(p string) {
	if _, held := (places.Roots{Home: f.judge.Home, Workspace: f.judge.root(p)}).Held(p, false); held {
		f.add(p, "the link "+p)
	}
}

// links holds what the links in dir lead to, and in the directories in it.
func (f *follower) links(dir string, depth int) {
	if depth == 0 || f.listed > maxWalked {
		f.stop(dir + " is deep, or there are too many files")
		return
	}
	entries, err := f.entries(dir)
	if err != nil {
		return // as a rule it is not there
	}
	f.listed += len(entries)
	for _, e := range entries {
		switch p := filepath.Join(dir, e.Name()); {
		case e.Type()&fs.ModeSymlink != 0:
			f.add(p, "the link "+p)
		case e.IsDir():
			f.links(p, depth-1)
		}
	}
}

// repository follows what the repository at top says, if there is one, and those that
// belong to it.
func (f *follower) repository(top string, everywhere []setting) {
	git := join(top, gitDir)
	kind, err := kindAt(git)
	if _, head := kindAt(join(top, "HEAD")); head == nil && bare(top) {
		f.repositoryIn(top, top, everywhere)
	}
	switch {
	case err != nil:
		return
	case kind&fs.ModeSymlink != 0:
		f.add(git, "the link "+git)
		if real, err := filepath.EvalSymlinks(git); err == nil {
			git = real
		}
	case kind.IsRegular():
		git = f.pointer(git, "gitdir:", top)
	}
	f.repositoryIn(git, top, everywhere)
}

// repositoryIn follows what the repository in the directory git says, with the work tree
// top, and those that belong to it.
func (f *follower) repositoryIn(git, top string, everywhere []setting) {
	r := repository{dir: git, common: git, tops: []string{top}}
	if common := f.pointer(filepath.Join(git, "commondir"), "", git); common != "" {
		r.common = common
	}
	if !f.follow(r, everywhere) {
		return
	}
	for _, s := range f.load(nil, filepath.Join(top, ".gitmodules"), 0) {
		if strings.HasPrefix(s.key, "submodule.") && strings.HasSuffix(s.key, ".path") {
			f.repository(filepath.Join(top, s.value), everywhere)
		}
	}
}

// bare reports whether dir has what makes a directory a repository.
func bare(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// follow follows what r says, its further work trees and its submodules, if it was not
// followed yet.
func (f *follower) follow(r repository, everywhere []setting) bool {
	real, err := filepath.EvalSymlinks(r.dir)
	if err != nil || f.repositories[real] {
		return false
	}
	if f.repositories[real] = true; len(f.repositories) > maxRepositories {
		f.wrong(fmt.Errorf("there are more than %d repositories; give the box a smaller tree", maxRepositories))
		return false
	}
	for _, name := range []string{"hooks", "info"} {
		d := filepath.Join(r.common, name)
		if fi, err := os.Lstat(d); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			f.add(d, "the link "+d)
		}
		f.links(d, heldLevels)
	}
	said := f.load(nil, filepath.Join(r.common, "config"), 0)
	for _, s := range said {
		if s.key == "core.worktree" {
			r.tops = append(r.tops, expand(s.value, r.dir, f.judge.Home))
		}
	}
	all := []repository{r}
	for _, name := range f.names(filepath.Join(r.common, "worktrees")) {
		own := filepath.Join(r.common, "worktrees", name)
		if tree := f.pointer(filepath.Join(own, "gitdir"), "", own); tree != "" {
			all = append(all, repository{dir: own, common: r.common, tops: []string{filepath.Dir(tree)}})
		}
	}
	for _, one := range all {
		f.hooks(filepath.Join(r.common, "hooks"), one.tops)
		f.apply(said, &one)
		f.apply(f.load(nil, filepath.Join(one.dir, "config.worktree"), 0), &one)
		f.apply(everywhere, &one)
	}
	f.modules(filepath.Join(r.common, "modules"), maxNested, everywhere)
	return true
}

// modules follows the repositories of submodules, whose names may have slashes.
func (f *follower) modules(dir string, depth int, everywhere []setting) {
	if depth == 0 {
		return
	}
	for _, name := range f.names(dir) {
		p := filepath.Join(dir, name)
		if bare(p) {
			f.follow(repository{dir: p, common: p}, everywhere)
		} else {
			f.modules(p, depth-1, everywhere)
		}
	}
}

// names lists the directories in dir, as long as not too much was listed.
func (f *follower) names(dir string) (names []string) {
	if f.listed > maxWalked {
		f.stop(fmt.Sprintf("there are more than %d files", maxWalked))
		return nil
	}
	entries, err := f.entries(dir)
	if err != nil {
		return nil // as a rule it is not there
	}
	f.listed += len(entries)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// pointer returns the path that a file of git is about, which may be relative to dir;
// "" if there is no such file.
func (f *follower) pointer(name, prefix, dir string) string {
	text, ok := f.read(name, maxPointer)
	text, is := strings.CutPrefix(strings.TrimRight(text, "\r\n"), prefix)
	if text = strings.TrimLeft(text, " "); !ok || !is || text == "" {
		return ""
	}
	return expand(text, dir, "")
}

// read reads a file of at most limit bytes without waiting. What is not there, or what
// the caller may not read, or what holds nothing, is not read: git is in no other
// place. Anything else is an error.
func (f *follower) read(name string, limit int64) (string, bool) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		var known bool
		for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, errNotDir, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL} {
			known = known || errors.Is(err, e)
		}
		if !known {
			f.wrong(err)
		}
		return "", false
	}
	defer file.Close()
	fi, err := file.Stat()
	if err == nil && (fi.IsDir() || fi.Mode()&fs.ModeDevice != 0) {
		return "", false
	}
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file, and git obeys it", name)
	}
	if f.files++; err == nil && f.files > maxFiles {
		err = fmt.Errorf("git obeys more than %d files; give the box a smaller tree", maxFiles)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, limit+1))
	}
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes, and git obeys it", name, limit)
	}
	if err != nil {
		f.wrong(err)
		return "", false
	}
	return string(text), true
}

// load adds to all what the configuration at name says, and what it includes.
func (f *follower) load(all []setting, name string, depth int) []setting {
	if f.err != nil {
		return all // there will be no box
	}
	if fi, err := os.Lstat(name); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		f.add(name, "the link "+name)
	}
	text, ok := f.read(name, maxConfig)
	if !ok {
		return all
	}
	if depth > maxNested {
		f.wrong(fmt.Errorf("%s is included too deep", name))
		return all
	}
	for key, value := range settings(text) {
		value, _, _ = strings.Cut(value, "\x00") // where git's strings end
		if len(all) >= maxSettings {
			f.wrong(fmt.Errorf("%s and what it includes say too much", name))
			return all
		}
		all = append(all, setting{key, value, name})
		if key == "include.path" || strings.HasPrefix(key, "includeif.") && strings.HasSuffix(key, ".path") {
			included := expand(value, filepath.Dir(name), f.judge.Home)
			f.add(included, key+" in "+filepath.Clean(name))
			all = f.load(all, included, depth+1)
		}
	}
	return all
}

// apply adds what settings name, for each directory of r that it may be relative to;
// without r, that is for later. Hooks about pushes run in the directory of the
// repository (githooks(5)).
func (f *follower) apply(said []setting, r *repository) {
	var tops, hooks []string
	if r != nil {
		hooks = append(slices.Clone(r.tops), r.dir, r.common)
		if tops = r.tops; len(tops) == 0 {
			tops = hooks
		}
	}
	if f.applied += len(said); f.applied > maxApplied {
		f.wrong(fmt.Errorf("configurations of git say more than %d things, counted for each work tree; give the box a smaller tree", maxApplied))
		return
	}
	for _, s := range said {
		by := s.key + " in " + filepath.Clean(s.in)
		switch kindOf(s.key) {
		case namesNothing:
		case namesHooks:
			f.each(s.value, hooks, func(p string) {
				f.add(p, by)
				f.hooks(p, tops)
			})
		case namesPath:
			f.each(s.value, tops, func(p string) { f.add(p, by) })
		case namesCommand:
			c := command{line: s.value, by: by, tops: tops}
			if r != nil {
				f.run(c)
			}
			for _, word := range words(s.value) {
				// However it is quoted, and what is within "--option=…".
				if strings.Contains(word, "/") {
					f.word(&c, shWord{text: word}, false, true)
				}
			}
		}
	}
}

// each calls found for each path that value may be.
func (f *follower) each(value string, tops []string, found func(p string)) {
	switch {
	case value == "":
	case strings.HasPrefix(value, "/") || strings.HasPrefix(value, "~") || strings.HasPrefix(value, "%(prefix)"):
		found(expand(value, "/", f.judge.Home))
	default:
		for _, top := range tops {
			found(expand(value, top, ""))
		}
	}
}

// expand returns the path that value is, relative to dir, as interpolate_path of git
// does it. It is not clean: what ".." means depends on links.
func expand(value, dir, home string) string {
	if rest, ok := strings.CutPrefix(value, "%(prefix)/"); ok {
		return gitPrefix + "/" + rest
	}
	if name, rest, _ := strings.Cut(value, "/"); strings.HasPrefix(name, "~") {
		if name != "~" {
			who, err := user.Lookup(name[1:])
			if err != nil {
				return dir + "/" + value // git cannot follow it either
			}
			home = who.HomeDir
		}
		if home != "" {
			return home + "/" + rest
		}
	}
	if strings.HasPrefix(value, "/") {
		return value
	}
	return dir + "/" + value
}
