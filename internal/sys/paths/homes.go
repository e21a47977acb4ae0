package paths

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrForeignHome marks a tree that is, or lies in, a home of ringfence that is not ours.
var ErrForeignHome = errors.New("a home of ringfence, which nothing in a box gets")

// DefaultName is the name of a home that no variable names, in the home directory of a user.
const DefaultName = ".ringfence"

const (
	keyHead    = "ringfence-key/v1 " // of private keys (package keychain)
	maxEntries = 1024                // of a directory that are looked at
	maxUsers   = 64 << 10            // bytes of /etc/passwd that are looked at
	keysIn     = string(filepath.Separator) + keysName
)

// HomeAbove returns the nearest directory that the clean absolute path p is or lies in,
// and that is a home of ringfence, whoever's: it has the name of one, or the keys of one.
// Those in own, which are known to the caller, are passed over. "" is none.
//
// Every decision about a path asks this, so it costs one system call for each directory
// and allocates little. Nothing is remembered: a home can be made at any time.
func HomeAbove(p string, own []string) string {
	for p = noKeys(p); len(p) > 1; p = noKeys(above(p)) {
		if (filepath.Base(p) == DefaultName && isDir(p) || hasKeys(p)) && !slices.Contains(own, p) {
			return p
		}
	}
	return ""
}

// above is [filepath.Dir] of a clean absolute path.
func above(p string) string {
	return p[:max(strings.LastIndexByte(p, filepath.Separator), 0)]
}

// hasKeys reports whether dir holds a private key of ringfence where a home does.
func hasKeys(dir string) bool {
	return isDir(dir+keysIn) && (isKey(LedgerKey(dir)) || isKey(filepath.Join(Keys(dir), "policy.key")))
}

func isKey(name string) bool {
	if fi, err := os.Lstat(name); err != nil || !fi.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false // nor can a box of ours
	}
	defer f.Close()
	head := make([]byte, len(keyHead))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == keyHead
}

// ForeignHomes returns the homes of ringfence, and the directories of the sockets of
// engines, that are to be hidden from whoever is given trees, besides those in own. All are
// real paths. A tree in such a home is [ErrForeignHome]. What is found lies directly in a
// tree, or is the ".ringfence" of a user whose home directory a tree has; no tree is
// walked, and of no directory more than 1,024 entries are looked at.
func ForeignHomes(trees, own []string) ([]string, error) {
	var found, users []string
	for _, tree := range trees {
		real, err := filepath.EvalSymlinks(tree)
		if err != nil {
			real = filepath.Clean(tree) // who gives what is not there says so
		}
		if home := HomeAbove(real, own); home != "" {
			return nil, fmt.Errorf("%s is, or is in, %s: %w: name another directory", tree, home, ErrForeignHome)
		}
		if !isDir(real) {
			continue
		}
		if users == nil {
			users = userHomes()
		}
		found = append(found, homesIn(real)...)
		if within("/home", real) {
			for _, e := range entries("/home") {
				users = append(users, filepath.Join("/home", e.Name()))
			}
		}
		for _, user := range users {
			if within(user, real) {
				found = append(found, filepath.Join(user, DefaultName))
			}
		}
	}
	found = slices.DeleteFunc(found, func(p string) bool { return !isDir(p) || slices.Contains(own, p) })
	slices.Sort(found)
	return slices.Compact(found), nil
}

// homesIn returns what lies directly in tree and is a home, by its name or by its keys, or
// a directory of sockets.
func homesIn(tree string) (found []string) {
	for _, e := range entries(tree) {
		p := filepath.Join(tree, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			if real, err := filepath.EvalSymlinks(p); err == nil && hasKeys(real) {
				found = append(found, real)
			}
		case e.IsDir() && (e.Name() == DefaultName || isSockets(e.Name()) || hasKeys(p)):
			found = append(found, p)
		}
	}
	return found
}

// isSockets reports whether name is one that [outsideSocket] gives a directory in /tmp.
func isSockets(name string) bool {
	uid, ok := strings.CutPrefix(name, socketsPrefix)
	_, err := strconv.ParseUint(uid, 10, 32)
	return ok && err == nil
}

// entries returns the first entries of dir, in no order.
func entries(dir string) []fs.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.ReadDir(maxEntries) // what was read before an error is looked at
	return all
}

// userHomes returns the home directories that /etc/passwd names (passwd(5)).
func userHomes() (homes []string) {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxUsers))
	if err != nil {
		return nil
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Split(line, ":"); len(fields) == 7 && len(fields[5]) > 1 && filepath.IsAbs(fields[5]) {
			homes = append(homes, filepath.Clean(fields[5]))
		}
	}
	return homes
}

// within reports whether p is dir or in it. Both are clean and absolute.
func within(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
