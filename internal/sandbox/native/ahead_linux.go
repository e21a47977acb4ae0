package native

import (
	"context"
	"errors"
	"os"

	"ringfence/internal/sandbox"
)

var _ sandbox.Preparer = Tier{}

// ahead is a box whose stage was started before its Spec was decided on. The stage
// waits for a plan: it has namespaces, and nothing in them.
type ahead struct {
	tier  Tier
	b     *builder
	ready chan struct{} // the stage is there, or b.fail says why not
	taken bool          // by Start or Discard
}

// Prepare implements [sandbox.Preparer].
func (t Tier) Prepare(s sandbox.Spec) sandbox.Prepared {
	a := &ahead{tier: t, b: t.builder(s), ready: make(chan struct{})}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		tryPIDFD()
		a.b.lookAhead()
	}()
	go func() {
		defer close(a.ready)
		setup, cancel := context.WithTimeout(context.Background(), setupTime)
		defer cancel()
		a.b.ground(setup)
		a.b.do("stage", a.b.startStage)
		<-looked
	}()
	return a
}

// tryPIDFD has package os try out, at the side, what it otherwise tries before it starts its
// first process: it forks one to see whether the kernel gives a descriptor of it.
func tryPIDFD() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release() // it was not for this
	}
}

// Start implements [sandbox.Prepared].
func (a *ahead) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	<-a.ready
	if err := s.Validate(sandbox.Overlays, sandbox.Entrances, sandbox.Homes); err != nil || !a.fits(s) {
		// Whatever is wrong, the other way says so.
		if err := a.Discard(); err != nil {
			return nil, err
		}
		return a.tier.Start(ctx, s)
	}
	a.taken = true
	b := a.b
	b.spec = s
	setup, cancel := context.WithTimeoutCause(ctx, setupTime, errors.New("it took too long"))
	defer cancel()
	b.do("context", func() error { return context.Cause(setup) })
	if err := b.complete(ctx, setup, b.thinkAside()); err != nil {
		return nil, err
	}
	return b.box, nil
}

// Discard implements [sandbox.Prepared].
func (a *ahead) Discard() error {
	<-a.ready
	if a.taken {
		return nil
	}
	a.taken = true
	b := a.b
	b.fail = nil // that it could not be begun matters to nobody
	if b.box.stage == nil {
		return b.undo()
	}
	return b.abandon()
}

// fits reports whether what was taken is what a box of s would have taken.
func (a *ahead) fits(s sandbox.Spec) bool {
	was, ids := a.b.spec, a.b.ids
	if a.taken || a.b.fail != nil || a.b.box.stage == nil || was.Bounds() != s.Bounds() ||
		was.Network != s.Network || was.Workspace.Upper != s.Workspace.Upper {
		return false
	}
	if ids.outer < 0 {
		return true
	}
	uid, gid, err := ownerOf(s)
	return err == nil && uid == ids.uid && gid == ids.gid
}
