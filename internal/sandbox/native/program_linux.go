package native

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ringfence/internal/sandbox"
)

const (
	maxInterpreters = 5   // a script's, and that one's, …: the kernel's own limit (fs/exec.c)
	maxShebang      = 256 // bytes of the first line that the kernel looks at (BINPRM_BUF_SIZE)
)

// addProgram makes the program of s visible, and what starts it: the interpreter of a
// script, the loader of a binary. Outside what every box has, that is the directory
// that it lies in, unless that directory holds more than programs.
func (v *view) addProgram(s sandbox.Spec) error {
	path := s.Argv[0]
	for range maxInterpreters {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, path, reason(err))
		}
		if fi, err := os.Stat(real); err != nil || !fi.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is not a file", sandbox.ErrNotFound, path)
		}
		known := v.visible(real)
		if !known {
			v.show(real, s)
		}
		if real != path {
			v.link(path, real)
		}
		next := interpreter(real, s.Env, known)
		if next == "" || next == path {
			return nil
		}
		path = next
	}
	return fmt.Errorf("%w: %s: more than %d interpreters call each other", sandbox.ErrNotFound, s.Argv[0], maxInterpreters)
}

// reason returns what the system said, without the names of calls and paths.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// show adds a program's file, or the directory that it lies in.
func (v *view) show(file string, s sandbox.Spec) {
	if v.denied(file) {
		return // it will not be found
	}
	dir := filepath.Dir(file)
	if private(dir, s) {
		v.nodes[file] = node{path: file, kind: kindBind, source: file, mapped: true}
		return
	}
	v.nodes[dir] = node{path: dir, kind: kindBind, source: dir, dir: true, mapped: true}
}

// private reports whether dir holds more than programs, as far as can be told: a
// home, what is above one or above the workspace, or a place where everybody writes.
func private(dir string, s sandbox.Spec) bool {
	if beneath(s.Workspace.Path, dir) && s.Workspace.Path != "" {
		return true
	}
	for _, e := range s.Env {
		if home, ok := strings.CutPrefix(e, "HOME="); ok && beneath(filepath.Clean(home), dir) {
			return true
		}
	}
	for _, p := range []string{"/root", "/home", "/tmp", "/var/tmp", "/dev/shm", "/etc", "/run", "/var"} {
		if dir == p || beneath(p, dir) || filepath.Dir(dir) == p && (p == "/home" || p == "/run") {
			return true
		}
	}
	fi, err := os.Lstat(dir)
	return err != nil || fi.Mode().Perm()&0o002 != 0
}

// interpreter returns the absolute path of what the kernel starts for file, or "": a
// script's first line, or the loader that a binary names (elf(5), PT_INTERP). For
// "/usr/bin/env name" it is name, by the PATH that the program gets. The loader of a
// known binary, one that every box has, is there too.
func interpreter(file string, env []string, known bool) string {
	f, err := os.Open(file)
	if err != nil {
		return "" // it may be executable and not readable
	}
	defer f.Close()
	head := make([]byte, maxShebang)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		words := strings.Fields(line)
		if len(words) > 1 && filepath.Base(words[0]) == "env" {
			return search(words[len(words)-1], env)
		}
		if len(words) > 0 && filepath.IsAbs(words[0]) {
			return words[0]
		}
		return ""
	}
	if known || !strings.HasPrefix(string(head[:n]), elf.ELFMAG) {
		return ""
	}
	return loader(f)
}

func loader(f io.ReaderAt) string {
	e, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err == nil {
			if name := strings.TrimRight(string(b), "\x00"); filepath.IsAbs(name) {
				return name
			}
		}
	}
	return ""
}

// search looks for an executable called name as execvp(3) does.
func search(name string, env []string) string {
	for _, e := range env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(dirs) {
			p := filepath.Join(d, name)
			if fi, err := os.Stat(p); filepath.IsAbs(d) && err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p
			}
		}
	}
	return ""
}
