package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// A view is the file tree of a box while it is thought up: what is at which path.
type view struct {
	nodes map[string]node
	// named are the paths that the Spec lists, resolved, and what it says of them.
	// What it names wins over what every box has.
	named map[string]sandbox.Mode
	aside string          // the workspace, where it is not the live tree
	host  map[string]node // what of this machine every box has, where nothing else is said
}

// base is what every box has of the host, read-only, where it exists. A symbolic
// link is made again as one.
var base = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec",
	"/nix/store", "/gnu/store", // whole systems live there, and all may read it
}

// etc is what every box has of /etc. Nothing here holds secrets on a machine as its
// makers ship it; what does, or names people and hosts, is made up (see synthetic).
var etc = []string{
	"alternatives", "bash.bashrc", "bashrc", "ca-certificates", "crypto-policies", "debian_version", "fonts", "gai.conf",
	"host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime",
	"lsb-release", "magic", "mime.types", "networks", "os-release", "perl", "pki/ca-trust", "pki/tls", "profile",
	"profile.d", "protocols", "python3", "rpc", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf",
	"terminfo", "timezone",
}

// devices are the device nodes that every box has.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// hidden are files of /proc that all may read, and that tell of the machine what only
// helps to attack it, or of what others do on it.
var hidden = []string{
	"acpi", "asound", "bus", "fs", "interrupts", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg",
	"latency_stats", "sched_debug", "scsi", "slabinfo", "sysrq-trigger", "timer_list", "timer_stats", "vmallocinfo",
}

// The sizes of what is private to a box and held in memory. Memory limits of the box
// count it too.
const (
	tmpSize = 1 << 30
	shmSize = 256 << 20
	// Of commands there are many at once.
	smallTmpSize = 256 << 20
	smallShmSize = 64 << 20
	homeSize     = 1 << 30
)

// newView makes the tree of a box of s. who is made known in its /etc/passwd. Without
// mounts of its own a box has nothing that the host has not. host is of [hostNodes].
func newView(s sandbox.Spec, who person, own bool, host map[string]node) (*view, error) {
	v := &view{nodes: map[string]node{}, named: map[string]sandbox.Mode{}, host: host}
	if err := v.addNamed(s); err != nil {
		return nil, err
	}
	if err := v.addHome(s.Home); err != nil {
		return nil, err
	}
	if err := v.addBase(who, s.Network); err != nil {
		return nil, err
	}
	if err := v.addProgram(s); err != nil {
		return nil, err
	}
	if err := v.addPlaced(s.Placed); err != nil {
		return nil, err
	}
	v.forget()
	if !own {
		return v, nil
	}
	v.addPrivate(who, s.Profile.Wide())
	return v, v.check()
}

// addNamed adds what the Spec names. Of two that are one path the narrower wins:
// what is denied is never readable, what is read-only is never writable.
func (v *view) addNamed(s sandbox.Spec) error {
	type entry struct {
		what, path string
		mode       sandbox.Mode
	}
	var all []entry
	for _, p := range s.ReadWrite {
		all = append(all, entry{"writable path", p, sandbox.ReadWrite})
	}
	if s.Workspace.Mode != sandbox.NoAccess {
		all = append(all, entry{"workspace", s.Workspace.Path, s.Workspace.Mode})
	}
	for _, p := range s.ReadOnly {
		all = append(all, entry{"readable path", p, sandbox.ReadOnly})
	}
	if s.ShowsEgress() {
		all = append(all, entry{"way out", s.Egress, sandbox.ReadOnly})
	}
	for _, p := range s.Denied {
		all = append(all, entry{"denied path", p, sandbox.NoAccess})
	}
	for _, e := range all {
		real, err := s.Real(e.path)
		if e.mode == sandbox.NoAccess && errors.Is(err, fs.ErrNotExist) {
			continue // what is not there need not be hidden
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
		if err := v.name(real, e.mode); err != nil {
			return fmt.Errorf("%s %s: %w", e.what, e.path, err)
		}
		if e.what == "workspace" {
			if err := v.apart(s.Workspace, real); err != nil {
				return fmt.Errorf("%s %s: %w", e.what, e.path, err)
			}
		}
		if real != e.path && e.mode != sandbox.NoAccess {
			v.link(e.path, real)
		}
	}
	return nil
}

// name adds one resolved path of the Spec.
func (v *view) name(path string, mode sandbox.Mode) error {
	if path == "/" {
		return v.nameRoot(mode)
	}
	for _, own := range []string{"/dev", "/proc", "/sys"} {
		if beneath(path, own) && mode != sandbox.NoAccess {
			return fmt.Errorf("a box has its own %s, or none", own)
		}
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	v.named[path] = mode
	n := node{path: path, kind: kindBind, source: path, dir: fi.IsDir(), write: mode == sandbox.ReadWrite, mapped: true}
	if mode == sandbox.NoAccess {
		n = node{path: path, kind: kindMask, dir: fi.IsDir()}
	}
	v.nodes[path] = n
	return nil
}

// nameRoot stands for everything: each entry of the root directory but those that a
// box has of its own.
func (v *view) nameRoot(mode sandbox.Mode) error {
	if mode == sandbox.ReadWrite {
		return errors.New("the root directory cannot be writable as a whole; name the directories")
	}
	if mode == sandbox.NoAccess {
		return errors.New("a box without any path cannot run a program")
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := "/" + e.Name()
		if slices.Contains([]string{"/dev", "/proc", "/sys", "/run", "/tmp"}, p) {
			continue
		}
		if _, ok := v.named[p]; ok {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			v.link(p, mustReadlink(p))
			continue
		}
		if err := v.name(p, mode); err != nil {
			return err
		}
	}
	return nil
}

// mustReadlink returns where a link leads, or "" if it is no link any more.
func mustReadlink(p string) string {
	target, err := os.Readlink(p)
	if err != nil {
		return ""
	}
	return target
}

// link adds a symbolic link, unless something is there or the link itself is visible
// in a tree that is bound.
func (v *view) link(path, target string) {
	if _, ok := v.nodes[path]; ok || target == "" {
		return
	}
	if above, ok := v.above(path); ok && above.kind == kindBind {
		return // also in the home of the box, where the box's own things are
	}
	// A link on the way is a directory in the box: it must not be in its own way.
	for p := filepath.Dir(path); len(p) > 1; p = filepath.Dir(p) {
		if v.nodes[p].kind == kindLink {
			return
		}
	}
	v.nodes[path] = node{path: path, kind: kindLink, source: target}
}

// above returns the nearest node that path is beneath, other than directories.
func (v *view) above(path string) (node, bool) {
	for p := path; len(p) > 1; {
		p = filepath.Dir(p)
		if n, ok := v.nodes[p]; ok && n.kind != kindDir {
			return n, true
		}
	}
	return node{}, false
}

// visible reports whether a resolved path is to be seen in the box.
func (v *view) visible(path string) bool {
	n, ok := v.nodes[path]
	if !ok {
		n, ok = v.above(path)
	}
	return ok && n.shows()
}

// shows reports whether what lies at n's path on this machine, and beneath, is to be seen.
func (n node) shows() bool { return n.kind == kindBind && !n.home }

// denied reports whether the longest of the named paths that path is in is denied.
func (v *view) denied(path string) bool {
	for p := path; len(p) > 1; p = filepath.Dir(p) {
		if mode, ok := v.named[p]; ok {
			return mode == sandbox.NoAccess
		}
	}
	return false
}

// forget drops what hides paths that nothing shows: they are not there anyway.
func (v *view) forget() {
	for path, n := range v.nodes {
		for n.kind == kindMask {
			above, ok := v.above(path)
			if ok && above.kind == kindMask {
				path = above.path
				continue
			}
			if !ok || !above.shows() {
				delete(v.nodes, n.path)
			}
			break
		}
	}
}

// addBase adds what every box has of the host.
func (v *view) addBase(who person, network sandbox.Network) error {
	for _, p := range base {
		v.addHost(p)
	}
	for _, name := range etc {
		v.addHost("/etc/" + name)
	}
	for p := range v.host {
		if strings.HasPrefix(p, javaEtc) {
			v.addHost(p)
		}
	}
	files, err := synthetic(who, network)
	if err != nil {
		return err
	}
	for path, text := range files {
		if _, ok := v.nodes[path]; !ok && !v.visible(path) && !v.denied(path) {
			v.nodes[path] = node{path: path, kind: kindFile, source: text, mode: 0o444}
		}
	}
	return nil
}

// addHost adds a path of the host as it is there. What the Spec names there wins.
func (v *view) addHost(path string) {
	n, ok := v.host[path]
	if _, taken := v.nodes[path]; taken || !ok || v.visible(path) || v.denied(path) {
		return
	}
	if n.kind == kindLink {
		v.link(path, n.source)
		return
	}
	v.nodes[path] = n
}

// addPrivate adds what belongs to the box alone.
func (v *view) addPrivate(who person, wide bool) {
	tmp, shm := int64(smallTmpSize), int64(smallShmSize)
	if wide {
		tmp, shm = tmpSize, shmSize
	}
	own := []node{
		{path: "/dev", kind: kindDir, mode: 0o755},
		{path: "/dev/pts", kind: kindPts},
		{path: "/dev/ptmx", kind: kindLink, source: "pts/ptmx"},
		{path: "/dev/shm", kind: kindTmpfs, size: shm, mode: 0o1777, write: true},
		{path: "/dev/fd", kind: kindLink, source: "/proc/self/fd"},
		{path: "/dev/stdin", kind: kindLink, source: "/proc/self/fd/0"},
		{path: "/dev/stdout", kind: kindLink, source: "/proc/self/fd/1"},
		{path: "/dev/stderr", kind: kindLink, source: "/proc/self/fd/2"},
		{path: "/proc", kind: kindProc},
		{path: "/run", kind: kindDir, mode: 0o755},
		{path: "/tmp", kind: kindTmpfs, size: tmp, mode: 0o1777, write: true},
		{path: "/var/tmp", kind: kindTmpfs, size: tmp, mode: 0o1777, write: true},
	}
	for _, d := range devices {
		own = append(own, node{path: "/dev/" + d, kind: kindBind, source: "/dev/" + d, device: true})
	}
	if home := who.home; v.homeless(home, own) {
		own = append(own, node{path: home, kind: kindTmpfs, size: homeSize, mode: 0o700, write: true})
	}
	for _, n := range own {
		if _, ok := v.nodes[n.path]; !ok && !v.visible(n.path) {
			v.nodes[n.path] = n
		}
	}
	for _, name := range hidden {
		if n, ok := v.host["/proc/"+name]; ok {
			v.nodes[n.path] = n
		}
	}
}

// homeless reports whether home is a directory that the box should get and has not: one
// that nothing shows, and that is no part of what every box has.
func (v *view) homeless(home string, own []node) bool {
	if home == "" || v.visible(home) {
		return false
	}
	for _, n := range own {
		if beneath(n.path, home) || n.kind != kindTmpfs && beneath(home, n.path) && n.path != "/run" {
			return false
		}
	}
	for _, p := range append([]string{"/etc"}, base...) {
		if beneath(p, home) || beneath(home, p) {
			return false
		}
	}
	return !beneath(home, "/sys")
}

// addConsole shows a terminal that was made outside, for ttyname(3): its own name is
// that of nothing, or of another, among the terminals of the box.
func (v *view) addConsole(fd int, terminal bool) {
	path := mustReadlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if terminal && beneath(path, "/dev/pts") {
		v.nodes["/dev/console"] = node{path: "/dev/console", kind: kindBind, source: path, device: true}
	}
}

// check finds mount points that would have to be made on the host (N5): a node within
// a tree that is bound must be there already, as a file or directory like its own.
func (v *view) check() error {
	for path, n := range v.nodes {
		above, ok := v.above(path)
		switch {
		case !ok || above.kind != kindMask:
		case n.kind == kindMask:
			delete(v.nodes, path) // hidden with what is above
		default:
			above.kind, above.mode, above.size = kindTmpfs, 0o755, 1<<20
			v.nodes[above.path] = above
		}
	}
	for path, n := range v.nodes {
		above, ok := v.above(path)
		if !ok || above.kind != kindBind && above.kind != kindProc {
			continue
		}
		if above.home {
			n.found = true // see mountPoints
			v.nodes[path] = n
			continue
		}
		fi, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("%s lies in %s, which is of the host: it must exist there: %w", path, above.path, reason(err))
		}
		if fi.IsDir() != (n.dir || n.kind == kindTmpfs) || fi.Mode()&fs.ModeSymlink != 0 || n.kind == kindFile {
			return fmt.Errorf("%s lies in %s, which is of the host, and is of another kind there", path, above.path)
		}
		n.found = true
		v.nodes[path] = n
	}
	return nil
}

// sorted returns the nodes so that what is above comes first.
func (v *view) sorted() []node {
	all := make([]node, 0, len(v.nodes))
	for _, n := range v.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b node) int { return strings.Compare(a.path, b.path) })
	return all
}

// beneath reports whether path is dir or in it.
func beneath(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
