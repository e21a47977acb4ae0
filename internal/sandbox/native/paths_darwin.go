package native

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/hold"
	"ringfence/internal/sandbox/native/seatbelt"
	"ringfence/internal/sys/proc"
)

const (
	maxInterpreters = 5   // a script's, and that one's, …
	maxShebang      = 512 // bytes of the first line that the kernel looks at (IMG_SHSIZE)
	maxLinks        = 32  // MAXSYMLINKS
)

// rulesOf makes the rules of the profile of s. exe is our own program, which becomes
// the program of s under the profile.
func rulesOf(s sandbox.Spec, exe string) (seatbelt.Rules, error) {
	r := seatbelt.Rules{Later: s.LaterWritable, Wide: s.Profile == sandbox.ProfileAgent || s.Profile == sandbox.ProfileServer}
	if err := addNamed(&r, s); err != nil {
		return r, err
	}
	if err := addProgram(&r, s); err != nil {
		return r, err
	}
	own, err := kernelPath(exe)
	if err != nil {
		return r, err
	}
	r.Places = append(r.Places, seatbelt.Place{Path: own, Mode: seatbelt.Read})
	r.Stat = append(r.Stat, linksOn(s.WorkingDir())...)
	switch s.Network {
	case sandbox.NetworkPolicy:
		p, err := existing(s, "way out", s.Egress)
		if err != nil {
			return r, err
		}
		r.Network, r.Egress = seatbelt.OnlyEgress, p.Path
		r.Stat = append(r.Stat, linksOn(s.Egress)...)
	case sandbox.NetworkOpen:
		r.Network = seatbelt.OpenNetwork
	}
	if terminal(s.Stdin) {
		if r.Terminal, err = pathOf(int(s.Stdin.Fd())); err != nil {
			return r, fmt.Errorf("terminal: %w", err)
		}
	}
	if who, err := user.Current(); err == nil && filepath.IsAbs(who.HomeDir) {
		if p, err := place(filepath.Clean(who.HomeDir)); err == nil && p.Rest == "" {
			r.Home = p.Path
		}
	}
	return r, addLed(&r)
}

// addLed holds what things that are held lead to.
func addLed(r *seatbelt.Rules) error {
	rules := hold.Rules{Later: r.Later, Home: r.Home}
	for _, p := range r.Places {
		if p.Mode == seatbelt.Write {
			rules.Writable = append(rules.Writable, p.Path)
		}
	}
	global := []string{"/etc/gitconfig", "/Library/Developer/CommandLineTools/usr/share/git-core/gitconfig"}
	if r.Home != "" {
		global = append(global, r.Home+"/.config/git/config", r.Home+"/.gitconfig")
	}
	for _, root := range rules.Writable {
		led, err := rules.Follow(root, global...)
		if err != nil {
			return err
		}
		for _, l := range led {
			if l.Path == "" {
				continue // a tree that is too large to look through
			}
			p, err := place(l.Path)
			if err != nil {
				return fmt.Errorf("%s, which %s leads to: %w", l.Path, l.By, err)
			}
			if !l.Home {
				r.Held = append(r.Held, p)
			} else if !slices.ContainsFunc(r.Places, func(q seatbelt.Place) bool { return q.Path == p.Path }) {
				r.Places = append(r.Places, p)
			}
		}
	}
	return nil
}

// terminal reports whether f is a terminal.
func terminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TIOCGETA)
	return err == nil
}

// addNamed adds what s names.
func addNamed(r *seatbelt.Rules, s sandbox.Spec) error {
	readOnly, readWrite := s.ReadOnly, s.ReadWrite
	switch s.Workspace.Mode {
	case sandbox.ReadOnly:
		readOnly = append([]string{s.Workspace.Path}, readOnly...)
	case sandbox.ReadWrite:
		readWrite = append([]string{s.Workspace.Path}, readWrite...)
	}
	for _, l := range []struct {
		what  string
		paths []string
		mode  seatbelt.Mode
	}{{"writable path", readWrite, seatbelt.Write}, {"readable path", readOnly, seatbelt.Read}} {
		for _, path := range l.paths {
			p, err := existing(s, l.what, path)
			if err != nil {
				return err
			}
			p.Mode = l.mode
			r.Places = append(r.Places, p)
			r.Stat = append(r.Stat, linksOn(path)...)
		}
	}
	for _, path := range s.Denied {
		p, err := place(path)
		if err != nil {
			return fmt.Errorf("denied path %s: %w", path, err)
		}
		r.Places = append(r.Places, p)
	}
	for _, path := range s.Held {
		p, err := place(path)
		if err != nil {
			return fmt.Errorf("held path %s: %w", path, err)
		}
		r.Held = append(r.Held, p)
	}
	return nil
}

// existing returns the place that the path of s leads to.
func existing(s sandbox.Spec, what, path string) (seatbelt.Place, error) {
	var p seatbelt.Place
	real, err := s.Real(path)
	if err == nil {
		p, err = place(real)
	}
	if err == nil && p.Rest != "" {
		err = fs.ErrNotExist
	}
	if err != nil {
		return p, fmt.Errorf("%s %s: %w", what, path, err)
	}
	return p, nil
}

// place returns path as the kernel spells it, as far as it exists.
func place(path string) (seatbelt.Place, error) {
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			real, err = kernelPath(real)
			return seatbelt.Place{Path: real, Rest: rest}, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return seatbelt.Place{}, err
		}
		if _, err := os.Lstat(p); err == nil {
			return seatbelt.Place{}, fmt.Errorf("%s is a link that leads nowhere: what would be made there is not known", p)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// kernelPath returns path, which has no links, as the kernel spells it. What cannot be
// opened is looked up in its directory.
func kernelPath(path string) (string, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if fi.IsDir() || fi.Mode().IsRegular() {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			return pathOf(fd)
		}
	}
	if path == "/" {
		return "/", nil
	}
	dir, err := kernelPath(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("how the volume spells %s: %w", path, err)
	}
	exact := filepath.Join(dir, filepath.Base(path))
	for _, n := range names {
		spelled := filepath.Join(dir, n.Name())
		if spelled == exact {
			return exact, nil
		}
	}
	for _, n := range names {
		spelled := filepath.Join(dir, n.Name())
		if other, err := os.Lstat(spelled); err == nil && os.SameFile(fi, other) {
			return spelled, nil
		}
	}
	return "", fmt.Errorf("how the volume spells %s: it is not in its directory", path)
}

// linksOn returns the links on the way of path, and on the way of where they lead.
func linksOn(path string) []string {
	var found []string
	for range maxLinks {
		link, next := firstLink(path)
		if link == "" {
			break
		}
		if dir, err := kernelPath(filepath.Dir(link)); err == nil {
			found = append(found, filepath.Join(dir, filepath.Base(link)))
		}
		path = next
	}
	return found
}

// firstLink returns the first link on the way of path, and path with where it leads in
// its place.
func firstLink(path string) (link, next string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		target, err := os.Readlink(path[:i])
		if err != nil {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path[:i]), target)
		}
		return path[:i], filepath.Join(target, path[i:])
	}
	return "", ""
}

// addProgram makes the program of s readable, and what the kernel starts for it. Outside
// of what every box has, and of what s names, that is the file alone.
func addProgram(r *seatbelt.Rules, s sandbox.Spec) error {
	named := append([]seatbelt.Place(nil), r.Places...)
	path := s.Argv[0]
	for range maxInterpreters {
		p, err := place(path)
		if err == nil && p.Rest != "" {
			err = fs.ErrNotExist
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, path, err)
		}
		if fi, err := os.Stat(p.Path); err != nil || !fi.Mode().IsRegular() {
			return fmt.Errorf("%w: %s is not a file", sandbox.ErrNotFound, path)
		}
		r.Stat = append(r.Stat, linksOn(path)...)
		if !covered(named, p.Path) {
			r.Places = append(r.Places, seatbelt.Place{Path: p.Path, Mode: seatbelt.Read})
		}
		next, err := interpreterOf(p.Path, s.Env)
		if err != nil || next == "" {
			return err
		}
		path = next
	}
	return fmt.Errorf("%w: %s: more than %d interpreters call each other", sandbox.ErrNotFound, s.Argv[0], maxInterpreters)
}

// covered reports whether path is in one of places, whatever that allows.
func covered(places []seatbelt.Place, path string) bool {
	for _, p := range places {
		if p.Rest == "" && (path == p.Path || strings.HasPrefix(path, strings.TrimSuffix(p.Path, "/")+"/")) {
			return true
		}
	}
	return false
}

// interpreterOf returns what is started for the program at file, or "". A stub of the
// developer tools is an error.
func interpreterOf(file string, env []string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", nil // it may be executable and not readable
	}
	defer f.Close()
	if seatbelt.Shim(file, f) {
		return "", fmt.Errorf("%w: %s: %s", sandbox.ErrNotFound, file, seatbelt.ShimAdvice)
	}
	head := make([]byte, maxShebang)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", nil
	}
	program, name := seatbelt.Interpreter(head[:n])
	if name == "" {
		return program, nil
	}
	return search(name, env), nil
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

// ownProgram returns our own program, which a stage is made of.
func ownProgram() (string, error) { return proc.Executable() }
