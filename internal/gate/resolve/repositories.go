package resolve

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Repository is one that a program would find in a tree.
type Repository struct {
	Top    string   // its work tree, or itself if it is bare
	Places []string // where its history is: what is real, directories as a rule
}

// Bounds of the search for repositories.
const (
	maxRepoDirs    = 20_000
	maxRepoEntries = 400_000
	maxRepos       = 1_000
	maxGitFile     = 1 << 20 // of bytes; git takes no larger one (setup.c)
)

// A search is for the repositories in one tree.
type search struct {
	entries int // that were seen
}

// Repositories finds the repositories in the tree at the real directory root, and the one
// that root lies in the history of. The error says that there is too much to look
// through, or what cannot be: then nothing may be said of what is there.
func (v View) Repositories(root string) ([]Repository, error) {
	var s search
	for d := root; d != "/"; d = path.Dir(d) {
		if is, err := isGitDir(d); is || err != nil { // what looks like one is taken for one
			r := Repository{Top: d, Places: []string{d}}
			return []Repository{r}, s.leads(&r)
		}
	}
	var found []Repository
	dirs := []string{root}
	for i := 0; i < len(dirs); i++ {
		names, _, err := s.list(dirs[i])
		if err != nil {
			return nil, err
		}
		r, err := s.repositoryAt(dirs[i])
		if err != nil {
			return nil, err
		}
		if r.Places != nil {
			found = append(found, r)
		}
		if len(dirs)+len(names) > maxRepoDirs || len(found) > maxRepos {
			return nil, errTooMany()
		}
		for _, name := range names {
			if p := join(dirs[i], name); !slices.Contains(r.Places, p) {
				dirs = append(dirs, p)
			}
		}
	}
	return found, nil
}

func errTooMany() error {
	return bad("give the box a smaller tree", "has more than %d directories, %d files or %d repositories, and not all can be looked through for repositories", maxRepoDirs, maxRepoEntries, maxRepos)
}

// repositoryAt returns the repository whose work tree is d, and that d is, which can be
// two at once; without places if there is none.
func (s *search) repositoryAt(d string) (Repository, error) {
	r := Repository{Top: d}
	git := join(d, ".git")
	if info, err := os.Stat(git); err == nil && info.Mode().IsRegular() {
		b, err := readBounded(git, maxGitFile)
		if err != nil {
			return r, err
		}
		if target, ok := strings.CutPrefix(cString(b), "gitdir: "); ok {
			r.add(target, d)
		}
	} else {
		r.add(git, d)
	}
	if is, err := isGitDir(d); is || err != nil {
		r.Places = append(r.Places, d)
	}
	return r, s.leads(&r)
}

// cString is what git makes of a file that has one path: it ends at a zero byte, and ends
// of lines at the end of the file are no part of it.
func cString(b []byte) string {
	text, _, _ := strings.Cut(strings.TrimRight(string(b), "\r\n"), "\x00")
	return text
}

// add adds the directory that text names, and the one that it shares with others.
func (r *Repository) add(text, dir string) {
	if !strings.HasPrefix(text, "/") {
		text = join(dir, text)
	}
	p, err := follow(text)
	if err != nil || !p.dir() {
		return
	}
	r.Places = append(r.Places, p.path)
	if b, err := readBounded(join(p.path, "commondir"), maxGitFile); err == nil && len(b) > 0 && len(r.Places) == 1 {
		r.add(cString(b), p.path)
	}
}

// leads adds to the places of r what links in them lead to, and the objects that it
// borrows: who changes those changes the repository.
func (s *search) leads(r *Repository) error {
	for dirs := slices.Clone(r.Places); len(dirs) > 0; dirs = dirs[1:] {
		d := dirs[0]
		names, links, err := s.list(d)
		if err != nil {
			return err
		}
		for _, name := range names {
			// An object has its name from its content, so a link at it decides nothing.
			if _, err := strconv.ParseUint(name, 16, 8); err != nil || len(name) != 2 || path.Base(d) != "objects" {
				dirs = append(dirs, join(d, name))
			}
		}
		var more []string
		for _, name := range links {
			more = append(more, join(d, name))
		}
		if path.Base(d) == "info" {
			lent, err := lenders(d)
			if err != nil {
				return err
			}
			more = append(more, lent...)
		}
		for _, name := range more {
			p, err := follow(name)
			switch {
			case err != nil:
				return err
			case slices.ContainsFunc(r.Places, func(in string) bool { return beneath(p.path, in) }):
			case !p.exists:
				return bad("remove the link", "has the repository %q, where %q leads to %q, which is not there: who makes it changes the repository", r.Top, name, p.path)
			default:
				r.Places = append(r.Places, p.path)
				if p.dir() {
					dirs = append(dirs, p.path)
				}
			}
		}
	}
	return nil
}

// lenders returns the directories whose objects are borrowed by the one that has info
// (gitrepository-layout(5), objects/info/alternates), those that there are.
func lenders(info string) ([]string, error) {
	b, err := readBounded(join(info, "alternates"), maxGitFile)
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if plain, err := strconv.Unquote(line); err == nil {
			line = plain
		}
		if !strings.HasPrefix(line, "/") {
			line = join(path.Dir(info), line)
		}
		if _, err := os.Stat(line); err == nil && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all, nil
}

// list lists the directories and the links in dir; none if it is not there by now, or is
// no directory. What cannot be looked into is an error: the program has the user of its
// owner as a rule, so it can open it, and pass it where it only cannot be listed.
func (s *search) list(dir string) (dirs, links []string, err error) {
	f, err := os.Open(dir)
	if err == nil {
		defer f.Close()
		_, err = os.Lstat(dir + "/.")
	}
	for err == nil {
		var entries []fs.DirEntry
		entries, err = f.ReadDir(1024)
		if s.entries += len(entries); s.entries > maxRepoEntries {
			return nil, nil, errTooMany()
		}
		for _, e := range entries {
			switch {
			case e.IsDir():
				dirs = append(dirs, e.Name())
			case e.Type()&fs.ModeSymlink != 0:
				links = append(links, e.Name())
			}
		}
	}
	slices.Sort(dirs)
	slices.Sort(links)
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return dirs, links, nil
	}
	return nil, nil, bad("run chmod u+rwx on it, or give the box a tree without it", "has %q, which cannot be looked through for repositories: %v", dir, cause(err))
}
