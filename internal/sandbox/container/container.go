// Package container is the tier whose boxes are containers of Docker or Podman,
// made and removed through the API socket of the engine, a fresh one for each box.
//
// Where the engine runs on the kernel that we run on, our own static binary is
// mounted into the container as its init. It connects back to us, takes the
// program's descriptors, arguments and environment over that connection, adds
// limits and a filter of system calls, and waits until everything was read back
// from /proc and [sandbox.Spec.Confirm] agreed. Elsewhere (Docker Desktop, a Podman
// machine) the container is made with the same settings, the streams are attached
// through the engine, and its word is all there is: the layers are inferred.
//
// It pulls no images, runs nothing to make one, and keeps no container for a second box. It is
// no broker: who can use the engine's socket is as good as root, so the socket is
// never mounted into anything.
//
// Invariants:
//
//	K1  A container belongs to one box and is removed with it. If we die, its init
//	    sees the connection close and the box dies, and a process that watches us
//	    removes the container, within seconds; where that was killed too, the next
//	    box that is started, or [Tier.Sweep], does.
//	K2  Where the init is ours, no byte of the program runs before every layer was
//	    read back and Confirm agreed, and a layer that is not as it should be is an
//	    error. Nothing is merely missing but nosuid and nodev of mounts, with Docker
//	    and without the rights of root.
//	K3  What a path in the container shows is the file that was named: a mount whose
//	    device and inode differ from those that we opened is an error, and so is one
//	    that goes away before the program's first instruction. When one goes away
//	    later, because what it stood on was replaced outside, the box is ended.
//	K4  No box runs as root of the machine, as another user of it than the owner of
//	    what it may write, or with a seccomp filter weaker than the engine's default. Where
//	    Docker's own keeps the init from holding names it has one of ours: what the filters
//	    of boxes let through. One that somebody has chosen is never replaced.
//	    What belongs to root it may write only if we are root, by mounts that map the
//	    owner, as user 65534 of the machine.
//	K5  Names that cannot be held are an error, never a note. In a live tree the init holds
//	    them, by package hold: the program itself can write there to nothing, and what
//	    it wants to, the init does. That was tried before the program starts.
//	K6  What the engine answers is bounded in size and in time.
package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"ringfence/internal/sandbox"
)

// Name is the name of this tier.
const Name = "container"

// Layers that no other tier has.
const (
	LayerReadOnlyRoot = "read-only-root"
	LayerMounts       = "mounts" // those of the Spec, with the files they name, and no others
	// LayerMountOptions is that no set-user-ID program and no device works in them.
	LayerMountOptions = "mount-options"
)

// The hidden verbs of [Child].
const (
	childVerb = "container-init"
	stageVerb = "container-stage"
	tryVerb   = "container-try"
	watchVerb = "container-watch"
)

// notInContainer is the exit status of a part that does not come to anything.
const notInContainer = 125

// Set-up has this long, without Confirm.
const setUpTime = time.Minute

// A Tier makes boxes in containers. Its methods may be called concurrently.
type Tier struct {
	o         Options
	elsewhere bool // take every engine for one on another kernel; for tests
	limitless bool // take limits that are not in force for missing; for tests of engines that cannot limit

	mu     sync.Mutex
	engine *engine // nil until one has answered
	// watchers are by the sockets of the engines.
	watchers map[string]*watcher
}

var _ sandbox.Tier = (*Tier)(nil)

// New returns the tier that o describes. Nothing is connected to yet.
func New(o Options) *Tier { return &Tier{o: o} }

// Name implements [sandbox.Tier].
func (*Tier) Name() string { return Name }

// Start implements [sandbox.Tier].
func (t *Tier) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	b, err := t.start(ctx, s)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, sandbox.ErrNotFound):
		return nil, fmt.Errorf("starting a container: %w", err)
	}
	if errors.Is(err, errMayHaveRun) {
		return nil, fmt.Errorf("starting a container: %w", err)
	}
	if broken := (*net.OpError)(nil); errors.As(err, &broken) {
		t.forget() // it may be another engine when it is back
	}
	return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
}

func (t *Tier) start(ctx context.Context, s sandbox.Spec) (*box, error) {
	if err := s.Validate(sandbox.Copies, sandbox.Entrances, sandbox.Homes); err != nil {
		return nil, err
	}
	if err := t.o.Validate(); err != nil {
		return nil, err
	}
	setUp, cancel := context.WithTimeoutCause(ctx, setUpTime, fmt.Errorf("the engine took longer than %v", setUpTime))
	defer cancel()
	e, err := t.connect(setUp)
	if err != nil {
		return nil, err
	}
	image, err := e.image(setUp, t.o.image())
	if err != nil {
		return nil, err
	}
	p, err := newPlan(s, t.o, e)
	if err != nil {
		return nil, err
	}
	defer p.close()
	dir, err := t.o.makeDir()
	if err != nil {
		return nil, fmt.Errorf("making a directory to set a box up in: %w", err)
	}
	b := &box{engine: e, dir: dir, done: make(chan struct{})}
	if p.unseen != "" {
		b.told = append(b.told, unseenDenial(p.unseen))
	}
	b, err = t.startIn(ctx, setUp, b, s, p, image)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go b.live(ctx)
	go sandbox.Watch(ctx, p.wall, b.done, b.end)
	return b, nil
}

// startIn completes b, whose directory is there.
func (t *Tier) startIn(ctx, setUp context.Context, b *box, s sandbox.Spec, p *plan, image imageAnswer) (*box, error) {
	if err := p.makeStandIns(b.dir); err != nil {
		return nil, err
	}
	lease, err := t.o.lease()
	if err != nil {
		return nil, err
	}
	p.search = p.searched(s.Argv[0], image)
	b.watcher = t.watcher(b.engine)
	lease[labelMark] = b.watcher.mark
	body := p.body(b.engine, image, lease)
	p.supervise(s, writableTemps(body.HostConfig.Tmpfs))
	name := digest(t.o.image(), image)
	if err := b.watcher.come(watched{Runtime: b.engine.kind, Socket: b.engine.socket, Home: t.o.Home, Dir: t.o.Dir}); err != nil {
		return nil, err
	}
	// A start that fails is not taken back: the watcher then looks whether it left anything.
	if b.engine.local {
		return b, t.startLocal(ctx, setUp, b, s, p, body, name)
	}
	return b, startRemote(ctx, setUp, b, s, p, body, name)
}

// forget makes the next box look for its engine again.
func (t *Tier) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.engine = nil
}
