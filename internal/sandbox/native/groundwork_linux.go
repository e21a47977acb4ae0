package native

import (
	"io/fs"
	"os"
	"path/filepath"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/filter"
)

// A groundwork is what a plan takes time for and no decision changes: what every box has
// of this machine, and filters. It is done while a decision is waited for.
type groundwork struct {
	host    map[string]node // of base, etc and hidden, those that are there; nil before it was looked
	filters map[filter.Options]string
}

// lookAhead does the groundwork for a box like that of the Spec, while its stage is started:
// of b it reads the Spec, and changes nothing but what is known. What another box turns out
// to need is done when it is needed.
func (b *builder) lookAhead() {
	b.known.host = hostNodes()
	names := len(b.spec.ReadWrite) > 0 || b.spec.Workspace.Mode == sandbox.ReadWrite
	for _, o := range []filter.Options{b.programFilter(names, b.sockets()), b.ownFilter(b.sockets())} {
		_, _ = b.built(o) // who needs it gets the error
	}
}

// built returns the seccomp program for o, as bytes.
func (b *builder) built(o filter.Options) (string, error) {
	if text, ok := b.known.filters[o]; ok {
		return text, nil
	}
	program, err := filter.Build(o)
	if err != nil {
		return "", err
	}
	if b.known.filters == nil {
		b.known.filters = map[filter.Options]string{}
	}
	b.known.filters[o] = programBytes(program)
	return b.known.filters[o], nil
}

// hostNodes returns what a box has of this machine without being told, by path.
func hostNodes() map[string]node {
	all := map[string]node{}
	add := func(path string, of func(string) (node, bool)) {
		if n, ok := of(path); ok {
			all[path] = n
		}
	}
	for _, p := range base {
		add(p, hostNode)
	}
	for _, name := range etc {
		add("/etc/"+name, hostNode)
	}
	if java, err := filepath.Glob(javaEtc + "*-openjdk"); err == nil {
		for _, p := range java {
			add(p, hostNode)
		}
	}
	for _, name := range hidden {
		add("/proc/"+name, maskNode)
	}
	return all
}

// hostNode returns what stands for a path of the host, if it is of a kind that a box can
// have: a link as a link.
func hostNode(path string) (node, bool) {
	fi, err := os.Lstat(path)
	if err != nil {
		return node{}, false
	}
	if dir := filepath.Dir(path); dir != "/" && dir != "/etc" {
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
			return node{}, false // what it leads to is in the list by its own name, or is not of the usual kind
		}
	}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		return node{path: path, kind: kindLink, source: mustReadlink(path)}, true
	case fi.Mode().IsRegular() && fi.Size() <= maxCopied:
		// Small files are copied: that is quicker than a mount, and a box has fewer of them.
		b, err := os.ReadFile(path)
		return node{path: path, kind: kindFile, source: string(b), mode: 0o444}, err == nil && len(b) <= maxCopied
	case fi.IsDir() || fi.Mode().IsRegular():
		return node{path: path, kind: kindBind, source: path, dir: fi.IsDir()}, true
	}
	return node{}, false
}

// javaEtc begins the names of what Debian has for each version of Java, without which none
// starts: what is in /usr links there.
const javaEtc = "/etc/java-"

const maxCopied = 4 << 10 // bytes

// maskNode returns what hides a path of /proc. What only root may open stays closed by
// itself: no box has the machine's.
func maskNode(path string) (node, bool) {
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode().Perm()&0o007 == 0 || fi.Mode()&fs.ModeSymlink != 0 {
		return node{}, false
	}
	return node{path: path, kind: kindMask, dir: fi.IsDir()}, true
}
