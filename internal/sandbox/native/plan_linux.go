package native

import (
	"ringfence/internal/sandbox/native/hold"
	"ringfence/internal/sandbox/native/landlock"
)

// A plan is all that a stage is told. The stage has no other source (N2).
type plan struct {
	failAt string // the step that fails on purpose, in tests
	open   bool   // the network is that of the machine
	plain  bool   // no namespaces: Landlock and the filter are all there is

	argv, env []string
	dir       string
	hostname  string
	slack     int  // what the timers of the program's threads may be late by, in nanoseconds; 0 for as it is
	uid, gid  int  // what the stage becomes, in its user namespace; -1 to stay as it is
	terminal  bool // standard input becomes the controlling terminal
	// How many descriptors come with the plan: the program's (0, 1, 2, …), then
	// mounts, then the "tasks" of control groups.
	files, mounts, groups int

	nodes   []node
	grants  []grant
	minABI  int
	limits  []limit
	program string // seccomp program of the program's process, as bytes
	own     string // the same of pid 1
	hold    holding

	entering entering // where the box comes to its way out; zero for nowhere
}

// A kind says how a node of the box's file tree comes to be.
type kind int

const (
	kindDir   kind = iota + 1 // a directory
	kindLink                  // a symbolic link to source
	kindFile                  // a file that holds source
	kindBind                  // what is at source on the host
	kindTmpfs                 // an empty file system of size bytes
	kindProc                  // the processes of the box; source is the group that sees all, "" for the usual one
	kindPts                   // its terminals
	kindMask                  // an empty thing, in the place of one that must not be there
)

// A node is one thing in the file tree of a box. Nodes are sorted by path, so that
// what is above comes first. No path has a symbolic link in it.
type node struct {
	path   string // in the box
	kind   kind
	source string
	fd     int // 1 + index of the descriptor of a mount made outside, 0 for none
	dir    bool
	write  bool
	device bool // device nodes work
	found  bool // lies in what is bound: it is there, and is never made (N5)
	// Of an overlay, its directories, and 1 + index of the descriptor of a mount of what
	// they are in, 0 for none.
	upper, work string
	layers      int
	mapped      bool // the owners of its files are to be seen in the box; not sent
	home        bool // it is the home of the box, of which nobody else has anything; not sent
	size        int64
	mode        int
}

// A grant is one rule of Landlock.
type grant struct {
	path   string
	access landlock.Access
	own    landlock.Access // what pid 1 may do beyond that, to do it for the program
}

// A limit is one resource limit, soft and hard (setrlimit(2)).
type limit struct {
	name     string // "cpu", …: the step is "rlimit " + name
	resource int
	value    int64
}

// holding is what the supervisor of held names is told: see hold.Rules.
type holding struct {
	on        bool // there is a supervisor
	names     bool // it stands in for the program in the writable trees
	sockets   bool // it connects and binds for the program
	writable  []string
	copied    []string
	held      []string
	led       []string
	by        []string   // what leads to each of led; not sent
	unseen    []hold.Led // what is not held, and why; not sent
	homes     []string   // of ringfence, that were found; not sent
	later     bool
	home      string
	shared    bool     // abstract sockets are those of the machine
	above     []string // private file systems that have writable trees beneath them
	private   []string
	reachable []string
}

func (p *plan) visit(c *coder) {
	c.str(&p.failAt)
	c.flag(&p.plain)
	c.strs(&p.argv)
	c.strs(&p.env)
	c.str(&p.dir)
	c.str(&p.hostname)
	c.integer(&p.slack)
	c.integer(&p.uid)
	c.integer(&p.gid)
	c.flag(&p.terminal)
	c.integer(&p.files)
	c.integer(&p.mounts)
	c.integer(&p.groups)
	list(c, &p.nodes, func(n *node) { n.visit(c) })
	list(c, &p.grants, func(g *grant) { g.visit(c) })
	c.integer(&p.minABI)
	list(c, &p.limits, func(l *limit) { l.visit(c) })
	c.str(&p.program)
	c.str(&p.own)
	c.flag(&p.open)
	p.entering.visit(c)
	c.flag(&p.hold.on)
	c.flag(&p.hold.names)
	c.flag(&p.hold.sockets)
	c.strs(&p.hold.writable)
	c.strs(&p.hold.copied)
	c.strs(&p.hold.held)
	c.strs(&p.hold.led)
	c.flag(&p.hold.later)
	c.str(&p.hold.home)
	c.flag(&p.hold.shared)
	c.strs(&p.hold.above)
	c.strs(&p.hold.private)
	c.strs(&p.hold.reachable)
}

func (n *node) visit(c *coder) {
	k := int(n.kind)
	c.str(&n.path)
	c.integer(&k)
	c.str(&n.source)
	c.integer(&n.fd)
	c.str(&n.upper)
	c.str(&n.work)
	c.integer(&n.layers)
	c.flag(&n.dir)
	c.flag(&n.write)
	c.flag(&n.device)
	c.flag(&n.found)
	c.num(&n.size)
	c.integer(&n.mode)
	n.kind = kind(k)
}

func (g *grant) visit(c *coder) {
	access, own := int64(g.access), int64(g.own)
	c.str(&g.path)
	c.num(&access)
	c.num(&own)
	g.access, g.own = landlock.Access(access), landlock.Access(own)
}

func (l *limit) visit(c *coder) {
	c.str(&l.name)
	c.integer(&l.resource)
	c.num(&l.value)
}

// A setup is what the stage says when all is set up.
type setup struct {
	abi     int      // of Landlock
	handled []string // what Landlock holds back
	traced  bool     // the kernel kills what is in the box when the stage is gone
	done    []string // the steps that were taken
}

func (s *setup) visit(c *coder) {
	c.integer(&s.abi)
	c.strs(&s.handled)
	c.flag(&s.traced)
	c.strs(&s.done)
}

// A failure is why a stage ended before the program ran.
type failure struct {
	step  string
	errno int
	text  string
}

func (f *failure) visit(c *coder) {
	c.str(&f.step)
	c.integer(&f.errno)
	c.str(&f.text)
}

// An ending is how the program ended: its wait status, and the processor time that it
// and those it waited for have used.
type ending struct {
	status int
	micros int64
}

func (e *ending) visit(c *coder) {
	c.integer(&e.status)
	c.num(&e.micros)
}

// A denied is one refusal of the supervisor, as hold.Denial.
type denied struct {
	op, path, rule string
	count          int
}

func (d *denied) visit(c *coder) {
	c.str(&d.op)
	c.str(&d.path)
	c.str(&d.rule)
	c.integer(&d.count)
}
