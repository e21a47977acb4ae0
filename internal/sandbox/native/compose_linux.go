package native

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/filter"
	"ringfence/internal/sandbox/native/hold"
	"ringfence/internal/sandbox/native/landlock"
)

// ownThreads is how many tasks pid 1 of a box has at most: threads of the Go runtime
// count as processes, and come on top of those that the Spec allows.
const ownThreads = 12

// think works out the plan.
func (b *builder) think() error {
	s, cut, err := b.hideOwn(b.spec)
	if err != nil {
		return err
	}
	p := &plan{
		failAt: b.fault.at, plain: b.plain, argv: s.Argv, env: s.Env, dir: s.WorkingDir(), hostname: hostname,
		open: s.Network == sandbox.NetworkOpen, uid: -1, gid: -1, slack: b.box.slack, files: 3 + len(s.Files), minABI: 1, limits: limits(s.Bounds()),
	}
	if b.become {
		p.uid, p.gid = b.ids.uid, b.ids.gid
	}
	who := personOf(s, b.ids.uid, b.ids.gid)
	if b.known.host == nil {
		b.known.host = hostNodes()
	}
	v, err := newView(s, who, !b.plain, b.known.host)
	if err != nil {
		return err
	}
	if p.hold, err = holdingOf(s, v, who); err != nil {
		return err
	}
	if cut != "" {
		p.hold.unseen = append(p.hold.unseen, hold.Led{By: cut, Object: "homes of ringfence in a large tree"})
	}
	if hide := b.notOurs(p.hold.homes); len(hide) > 0 {
		s.Denied = slices.Concat(s.Denied, hide)
		if v, err = newView(s, who, !b.plain, b.known.host); err != nil {
			return err
		}
	}
	b.holdSockets(&p.hold)
	p.entering = enteringOf(s.Ways)
	b.plan = p
	if s.Stdin != nil {
		_, err := unix.IoctlGetTermios(int(s.Stdin.Fd()), unix.TCGETS)
		p.terminal = err == nil
		v.addConsole(int(s.Stdin.Fd()), p.terminal)
	}
	if b.plain {
		if err := b.thinkPlain(p, v); err != nil {
			return err
		}
	} else {
		p.nodes = v.sorted()
		p.hold.private = privateOf(p.nodes)
		if p.hold.names {
			p.hold.above = aboveAny(slices.Concat(p.hold.private, homesOf(p.nodes)), p.hold.writable)
		}
		if err := b.mountPoints(p.nodes); err != nil {
			return err
		}
		if b.ids.outer >= 0 {
			b.hideProcesses(p.nodes)
		}
		p.grants = grants(p.nodes, p.hold)
		for _, way := range p.hold.reachable {
			// From ABI 9 on, Landlock refuses the program to connect by itself.
			p.grants = append(p.grants, grant{path: way, own: landlock.Connect})
		}
	}
	return b.filters()
}

// hideProcesses keeps group 0 from seeing what hidepid hides, which it does by default:
// a box of root is in it.
func (b *builder) hideProcesses(nodes []node) {
	for i := range nodes {
		if nodes[i].kind == kindProc {
			nodes[i].source = strconv.Itoa(blockSize - 1)
		}
	}
}

// holdingOf says what the supervisor is told. It stands in for the program in what is
// writable and of the host, also where no name is held: a file there may have another
// name elsewhere.
func holdingOf(s sandbox.Spec, v *view, who person) (holding, error) {
	h := holding{later: s.LaterWritable, home: who.home}
	live := false
	for _, n := range v.sorted() {
		if n.kind == kindBind && n.write && !n.home {
			h.writable = append(h.writable, n.path)
			live = live || n.path != v.aside // an overlay changes nothing before it is applied
			if n.path == v.aside {
				h.copied = append(h.copied, n.path)
			}
		}
	}
	for _, p := range s.Held {
		h.held = append(h.held, p)
		if real := realOf(p); real != p {
			h.held = append(h.held, real)
		}
	}
	if err := h.follow(who); err != nil {
		return h, err
	}
	h.names = len(h.writable) > 0 && (live || len(h.held)+len(h.led) > 0)
	h.on = h.names
	return h, nil
}

// follow adds what things that are held lead to: see [hold.Rules.Follow].
func (h *holding) follow(who person) error {
	rules := hold.Rules{Writable: h.writable, Later: h.later, Home: who.home}
	homes := []string{who.home}
	if f := account("/etc/passwd", 2, os.Getuid()); len(f) > 5 && f[5] != who.home {
		homes = append(homes, f[5]) // whose programs run what is told there, whatever the box calls its home
	}
	global := []string{"/etc/gitconfig"}
	for _, home := range homes {
		if home != "" {
			global = append(global, home+"/.config/git/config", home+"/.gitconfig")
		}
	}
	for _, root := range h.writable {
		led, err := rules.Follow(root, global...)
		if err != nil {
			return err
		}
		for _, l := range led {
			switch {
			case l.Path == "":
				h.unseen = append(h.unseen, l)
				continue
			case l.Home:
				h.homes = append(h.homes, l.Path)
				continue
			}
			if !slices.Contains(h.led, l.Path) {
				h.led, h.by = append(h.led, l.Path), append(h.by, l.By)
			}
		}
	}
	return nil
}

// sockets reports whether the program can make sockets. Without a network namespace
// nothing would keep them in the box.
func (b *builder) sockets() bool { return b.spec.Sockets() && !b.plain }

// holdSockets has the supervisor tell the sockets of the box from those of the host.
func (b *builder) holdSockets(h *holding) {
	if !b.sockets() {
		return
	}
	h.on, h.sockets, h.shared = true, true, b.spec.Network == sandbox.NetworkOpen
	if b.spec.ShowsEgress() {
		h.reachable = append(h.reachable, realOf(b.spec.Egress))
	}
}

// privateOf lists the file systems that are the box's own.
func privateOf(nodes []node) (paths []string) {
	for _, n := range nodes {
		if n.kind == kindTmpfs {
			paths = append(paths, n.path)
		}
	}
	return paths
}

// aboveAny returns those of trees that one of others is beneath.
func aboveAny(trees, others []string) (above []string) {
	for _, t := range trees {
		if slices.ContainsFunc(others, func(o string) bool { return beneath(o, t) }) {
			above = append(above, t)
		}
	}
	return above
}

// realOf resolves the links of a path as far as it exists.
func realOf(path string) string {
	rest := ""
	for p := path; len(p) > 1; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
	return path
}

// filters makes the seccomp programs.
func (b *builder) filters() (err error) {
	h := b.plan.hold
	if b.plan.program, err = b.built(b.programFilter(h.names, h.sockets)); err != nil {
		return err
	}
	b.plan.own, err = b.built(b.ownFilter(h.sockets))
	return err
}

// programFilter is the filter of the program, of which names, or sockets, are held.
func (b *builder) programFilter(names, sockets bool) filter.Options {
	can := b.sockets()
	return filter.Options{
		Agent: b.spec.Profile.Wide(), Namespaces: !b.plain, Hold: names, Sockets: sockets,
		Unix: can, Inet: can, RouteNetlink: can,
	}
}

// ownFilter is that of pid 1.
func (b *builder) ownFilter(sockets bool) filter.Options {
	return filter.Options{Init: true, Sockets: sockets, Trace: b.plain}
}

// limits are the resource limits of each process of a box, soft and hard alike. That
// of processes is one of the box: the kernel counts them by user within a user
// namespace (kernel/ucount.c; Linux 5.14). None is above what this process may have: a
// hard limit can only be lowered.
func limits(l sandbox.Limits) []limit {
	all := []limit{{"core", unix.RLIMIT_CORE, coreSize()}}
	add := func(name string, resource int, value int64) {
		if value != sandbox.Unlimited {
			all = append(all, limit{name, resource, value})
		}
	}
	add("cpu", unix.RLIMIT_CPU, seconds(l.CPU))
	add("address space", unix.RLIMIT_AS, l.AddressSpace)
	add("descriptors", unix.RLIMIT_NOFILE, int64(l.Descriptors))
	if l.Processes != sandbox.Unlimited {
		add("processes", unix.RLIMIT_NPROC, int64(l.Processes)+ownThreads)
	}
	add("pending signals", unix.RLIMIT_SIGPENDING, pendingSignals)
	for i, l := range all {
		all[i] = l.within()
	}
	return all
}

// within returns l no higher than the hard limit of this process.
func (l limit) within() limit {
	var own unix.Rlimit
	if unix.Getrlimit(l.resource, &own) == nil && own.Max < uint64(l.value) {
		l.value = int64(own.Max)
	}
	return l
}

// pendingSignals is how many signals that wait, and timers, a box may have together. The
// kernel counts them for the user of the machine as well, and lets him have as many as
// he may have processes.
const pendingSignals = 4096

// coreSize is the limit that keeps the kernel from writing memory down. A limit of 0
// does not keep it from starting a program of the host with it, outside the box; one
// of 1 does both (fs/coredump.c; no file begins with less than a page).
func coreSize() int64 {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err == nil && len(pattern) > 0 && (pattern[0] == '|' || pattern[0] == '@') {
		return 1
	}
	return 0
}

// seconds rounds up: a limit of 0 would end the program at once.
func seconds(d time.Duration) int64 {
	if d == sandbox.Unlimited {
		return sandbox.Unlimited
	}
	return int64(math.Ceil(d.Seconds()))
}

// grants are the rules of Landlock for nodes: a second wall behind the mounts, which
// also keeps what a mount shows from being executed or changed where that makes no
// sense. What is held is changed by pid 1 only, and so is what is above it: Landlock
// grants what is mounted beneath a tree with the tree.
func grants(nodes []node, h holding) []grant {
	const (
		read  = landlock.Read
		use   = landlock.Read | landlock.Execute
		write = landlock.Write
	)
	all := []grant{
		{path: "/dev", access: read | write | landlock.Device},
		{path: "/proc", access: read},
	}
	// All of it may be hidden.
	if slices.ContainsFunc(nodes, func(n node) bool { return beneath(n.path, "/etc") }) {
		all = append(all, grant{path: "/etc", access: read})
	}
	for _, n := range nodes {
		inDev := beneath(n.path, "/dev") && n.kind != kindTmpfs
		own := n.kind == kindTmpfs || n.home
		switch {
		case own && n.write && slices.Contains(h.above, n.path):
			all = append(all, grant{path: n.path, access: use, own: write})
		case own && n.write:
			all = append(all, grant{path: n.path, access: use | write})
		case n.kind != kindBind || inDev || beneath(n.path, "/etc") && !n.mapped:
		case n.write && h.names:
			all = append(all, grant{path: n.path, access: use, own: write})
		case n.write:
			all = append(all, grant{path: n.path, access: use | write})
		default:
			all = append(all, grant{path: n.path, access: use})
		}
	}
	return all
}

func (g grant) String() string { return fmt.Sprintf("%s to %s", g.access, g.path) }
