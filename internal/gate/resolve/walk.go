package resolve

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/text/unicode/norm"

	"ringfence/internal/sys/look"
)

// A walker is the state of follow.
type walker struct {
	cur     string
	link    string
	info    look.Info // of cur, if known
	known   bool
	missing int
	links   int
}

// step enters name, with rest still to come, and returns the target of a link.
func (w *walker) step(name string, rest []string) (target string, err error) {
	switch {
	case name == "" || name == ".":
		return "", w.mustBeDir(len(rest) > 0 || w.cur != "/")
	case len(name) > maxName:
		return "", bad("", "has a component of more than %d bytes", maxName)
	case name == "..":
		if w.missing > 0 {
			return "", bad("", `has ".." after %q, which does not exist`, w.cur)
		}
		if err := w.mustBeDir(true); err != nil {
			return "", err
		}
		w.cur, w.known = path.Dir(w.cur), false
		return "", nil
	}
	if w.missing > 0 {
		w.cur, w.missing = join(w.cur, name), w.missing+1
		return "", nil
	}
	if err := w.mustBeDir(true); err != nil {
		return "", err
	}
	return w.enter(name, rest)
}

func (w *walker) enter(name string, rest []string) (string, error) {
	next := join(w.cur, name)
	info, err := look.Lstat(next)
	if errors.Is(err, fs.ErrNotExist) && !ascii(name) {
		if name, err = twin(w.cur, name); err != nil {
			return "", err
		}
		next = join(w.cur, name)
		info, err = look.Lstat(next)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.cur, w.known, w.missing = next, false, 1
		return "", nil
	case err != nil:
		return "", bad("", "could not be examined at %q: %v", next, cause(err))
	case !info.IsLink():
		w.cur, w.info, w.known = next, info, true
		return "", nil
	}
	return w.enterLink(next, rest)
}

func (w *walker) enterLink(next string, rest []string) (string, error) {
	if next == "/proc" || strings.HasPrefix(next, "/proc/") {
		return "", bad("", "goes through %q, a link that leads each process somewhere else", next)
	}
	if w.links++; w.links > maxLinks {
		return "", bad("", "goes through more than %d links", maxLinks)
	}
	target, err := os.Readlink(next)
	if err != nil {
		return "", bad("", "could not be examined at %q: %v", next, cause(err))
	}
	if target == "" || len(target) > maxPath {
		return "", bad("", "goes through %q, a link without a usable target", next)
	}
	if len(rest) == 0 && w.link == "" {
		w.link = next
	}
	if target[0] == '/' {
		w.cur, w.known = "/", false
	}
	return target, nil
}

// mustBeDir refuses to go on below something that is no directory.
func (w *walker) mustBeDir(needed bool) error {
	if needed && w.known && !w.info.IsDir() {
		return bad("", "goes on below %q, which is no directory", w.cur)
	}
	return nil
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// cause returns what the system said, without the path that it said it of.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// twin returns the entry of dir that name is another Unicode spelling of, or
// name itself if there is none. File systems and servers that compare
// normalised names would reach that entry.
func twin(dir, name string) (string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", bad("", "could not be examined in %q: %v", dir, cause(err))
	}
	defer f.Close()
	want, found := norm.NFC.String(name), name
	for seen := 0; ; {
		entries, err := f.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return "", bad("", "could not be examined in %q: %v", dir, cause(err))
		}
		if seen += len(entries); seen > maxEntries {
			return "", bad("", "has more than %d neighbours, too many to look for other spellings of its name", maxEntries)
		}
		for _, e := range entries {
			if ascii(e) || norm.NFC.String(e) != want {
				continue
			}
			if found != name {
				return "", bad("", "could be %q or %q, which look the same", found, e)
			}
			found = e
		}
	}
}
