package container

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"ringfence/internal/sandbox"
)

// A plan is what a Spec comes to in a container of one engine.
type plan struct {
	uid, gid uint64 // in the container
	userns   string // Podman: how users inside map to those outside
	mounts   []mount
	memory   int64 // bytes; 0 for no limit
	cpus     int64 // billionths of a processor
	pids     int64 // processes and threads of the program; 0 for no limit
	wall     time.Duration
	limits   limits
	dir      string
	mapped   bool // a mount is
	attached bool // all are mounted once more by us
	// search are files of the image that the program can be, if it is not where the
	// Spec says.
	search []string
	// Where the workspace is a copy: where it lies, and where it is in the container.
	copy, copyAt string
	// Where the box has a home of its own: where it lies, and where it is in the container.
	homeFrom, homeAt string
	// unseen says where homes of ringfence were not looked for, "" if everywhere.
	unseen string
	held   *holding // nil where no names are held but by mounts
}

// A mount shows a file or tree of ours in the container, or something empty in its
// place.
type mount struct {
	real     string // what it is about, without symbolic links
	source   string // what is shown: real, or the stand-in
	target   string
	readOnly bool
	denied   bool
	id       fileID
	opened   *os.File // keeps the inode from being given out again
	// mapped says that what the user ids owns is to look like that of the box's user,
	// by a mount that we make.
	mapped bool
	ids    ids
}

// ids are a user and a group of the machine.
type ids struct{ uid, gid uint64 }

// limits are resource limits of each process, soft and hard; 0 sets none.
type limits struct {
	CPU          uint64 // seconds
	AddressSpace uint64
	Descriptors  uint64
}

// nobody is whom a box runs as that writes nothing of ours.
const nobody = 65534

// boxPids is the limit of processes and threads where nothing is said, so that a
// machine never fills up with them.
const boxPids = 4096

// maxNested bounds the file systems that are mounted beneath a path.
const maxNested = 64

func newPlan(s sandbox.Spec, o Options, e *engine) (*plan, error) {
	p := &plan{dir: s.WorkingDir()}
	if err := p.checkEngine(s, e); err != nil {
		return nil, err
	}
	p.bounds(s, o)
	var err error
	if s, p.unseen, err = o.hideOwn(s); err != nil {
		return nil, err
	}
	if s, err = p.lead(s, e); err != nil {
		return nil, err
	}
	if err := errors.Join(p.paths(s, e), p.checkOwn(o), p.homePlaces(s.Home)); err != nil {
		p.close()
		return nil, err
	}
	if err := p.chooseUser(e); err != nil {
		p.close()
		return nil, err
	}
	slices.SortFunc(p.mounts, func(a, b mount) int { return strings.Compare(a.target, b.target) })
	return p, nil
}

func (p *plan) close() {
	for _, m := range p.mounts {
		m.opened.Close()
	}
}

// checkEngine refuses what an engine on another kernel cannot do.
func (p *plan) checkEngine(s sandbox.Spec, e *engine) error {
	if s.Network == sandbox.NetworkOpen {
		return errors.New("a container is not given the network of this machine; use the native tier, or none at all")
	}
	if len(s.Ways.Beyond()) > 0 {
		return errors.New("a container is given no addresses beyond its loopback")
	}
	if e.local {
		return nil
	}
	switch {
	case len(s.Files) > 0:
		return fmt.Errorf("%s is on another kernel, and files cannot be handed to a program there", e)
	case s.Network == sandbox.NetworkPolicy:
		return fmt.Errorf("%s is on another kernel, and our way out cannot be reached from there", e)
	case s.Limits.AddressSpace > 0:
		return fmt.Errorf("%s is on another kernel, and address space cannot be limited there; limit memory", e)
	}
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f == nil {
			continue
		}
		if fi, err := f.Stat(); err != nil || fi.Mode()&fs.ModeCharDevice != 0 && f.Name() != os.DevNull {
			return fmt.Errorf("%s is on another kernel, and a terminal cannot be handed to a program there", e)
		}
	}
	return nil
}

// bounds sets the limits. Those of the operator cap a box for a command or for
// code; for an agent or a server they stand in for what is not set.
func (p *plan) bounds(s sandbox.Spec, o Options) {
	b := s.Bounds()
	short := s.Profile == "" || s.Profile == sandbox.ProfileCommand || s.Profile == sandbox.ProfileCode
	most, longest := orElse(o.Memory, DefaultMemory), orElse(o.Timeout, DefaultTimeout)
	p.memory, p.wall = b.Memory, b.Wall
	switch {
	case short && (b.Memory == sandbox.Unlimited || b.Memory > most):
		p.memory = most
	case b.Memory == sandbox.Unlimited && s.Limits.Memory == sandbox.Unlimited:
		p.memory = 0
	case b.Memory == sandbox.Unlimited:
		p.memory = most
	}
	if short && (b.Wall == sandbox.Unlimited || b.Wall > longest) {
		p.wall = longest
	}
	p.cpus = orElse(o.CPUs, DefaultCPUs)
	switch {
	case b.Processes != sandbox.Unlimited:
		p.pids = int64(b.Processes)
	case s.Limits.Processes != sandbox.Unlimited:
		p.pids = boxPids
	}
	if b.CPU != sandbox.Unlimited {
		p.limits.CPU = uint64(math.Ceil(b.CPU.Seconds()))
	}
	if b.AddressSpace != sandbox.Unlimited {
		p.limits.AddressSpace = uint64(b.AddressSpace)
	}
	if b.Descriptors != sandbox.Unlimited {
		p.limits.Descriptors = uint64(b.Descriptors)
	}
}

// chooseUser picks whom the box runs as: nobody, or the owner of what it may write, or
// of what nobody else may read. What belongs to somebody else then is mapped, if we can.
func (p *plan) chooseUser(e *engine) error {
	p.uid, p.gid = nobody, nobody
	own := make([]needed, 0, len(p.mounts))
	for i := range p.mounts {
		n, err := neededOf(&p.mounts[i])
		if err != nil {
			return fmt.Errorf("asking whose a path is: %w", err)
		}
		own = append(own, n)
	}
	canMap := e.local && !e.rootless && !e.remapped && machineRoot()
	for _, write := range []bool{true, false} {
		i := slices.IndexFunc(own, func(n needed) bool { return n.own && n.readOnly != write })
		if i < 0 || own[i].uid == 0 && canMap {
			continue
		}
		if err := p.become(own[i], e); err != nil {
			return err
		}
		break
	}
	for _, n := range own {
		if n.own && n.uid != p.uid && canMap {
			n.mapped, n.mount.ids, p.mapped = true, n.ids, true
		}
	}
	// Docker cannot be asked for nosuid and nodev.
	p.attached = p.mapped || canMap && e.kind == RuntimeDocker && len(p.mounts) > 0
	return nil
}

// needed says of a mount whether only its owner can use it as it is shown.
type needed struct {
	*mount
	ids
	own bool
}

func neededOf(m *mount) (n needed, err error) {
	var fi os.FileInfo
	if m.opened != nil {
		fi, err = m.opened.Stat()
	} else {
		fi, err = os.Stat(m.real)
	}
	if err != nil {
		return n, err
	}
	n.mount = m
	n.uid, n.gid, _ = ownership(fi)
	if m.readOnly {
		n.own = !m.denied && !readable(fi)
	} else {
		n.own = fi.Mode().Perm()&0o002 == 0
	}
	return n, nil
}

// readable reports whether others than its owner may use a path.
func readable(fi os.FileInfo) bool {
	want := fs.FileMode(0o004)
	switch {
	case fi.IsDir():
		want = 0o005
	case fi.Mode()&fs.ModeSocket != 0:
		want = 0o006
	}
	return fi.Mode().Perm()&want == want
}

func (p *plan) become(m needed, e *engine) error {
	own := uint64(os.Getuid())
	switch {
	case m.uid == 0 && !m.readOnly:
		return fmt.Errorf("%s belongs to root, and no container runs as root; give it to a user (sudo chown -R USER %s), take it read-only, or use the tier native", m.real, m.real)
	case e.remapped && !m.readOnly:
		return fmt.Errorf("%s maps the users of containers to others, who cannot write to %s; take it read-only, or use the tier native", e, m.real)
	case e.rootless && m.uid != own && !m.readOnly:
		return fmt.Errorf("%s belongs to user %d, and a rootless engine's containers can write only what is ours", m.real, m.uid)
	case m.uid == 0 || e.remapped || e.rootless && m.uid != own:
		return nil // nobody cannot read it, which will be said
	case e.rootless && e.kind == RuntimeDocker:
		p.uid, p.gid = 0, 0 // who is we, outside
		return nil
	case e.rootless:
		p.userns = "keep-id"
	}
	p.uid, p.gid = m.uid, m.gid
	if p.gid == 0 {
		p.gid = nobody
	}
	return nil
}
