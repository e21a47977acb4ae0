package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ringfence/internal/daemon/api"
	"ringfence/internal/sandbox"
	"ringfence/internal/session"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// A runRecord keeps what "ringfence run" runs, while it does and afterwards. A nil one keeps
// nothing.
type runRecord struct {
	dir  string
	run  session.Run
	held *holding
	lost atomic.Bool // the engine has gone
}

// keepRun begins to keep a run of a session.
func (f *execFlags) keepRun(s *streams, opened api.Opened, spec sandbox.Spec, tier string) (*runRecord, error) {
	if f.verb != "run" {
		return nil, nil
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	k := &runRecord{dir: paths.Runs(home), held: s.held, run: session.Run{
		ID: opened.Session, Argv: s.args, Title: strings.Join(spec.Argv, " "), Workspace: spec.Workspace.Path, Policy: f.policy,
		Tier: tier, Holder: proc.OwnLease(), Began: time.Now().UTC(),
	}}
	if f.guest != nil {
		k.run.Agent, k.run.Title = f.guest.adapter.Name, f.guest.adapter.Name+" in "+spec.Workspace.Path
	}
	if k.run.Dir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	if f.resumes != "" {
		was, err := session.LoadRun(k.dir, f.resumes)
		if err == nil {
			was.Resumed = k.run.ID
			err = session.SaveRun(k.dir, was)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.held != nil {
		if k.run.Socket, err = s.held.opened(home, opened.Session); err != nil {
			return nil, err
		}
		go s.held.screen.keep(s.held.life, filepath.Join(k.dir, k.run.ID))
	}
	return k, session.SaveRun(k.dir, k.run)
}

// guard ends a box when the engine that decides for it has gone, and at once what the guest has
// beside it: what is left to be recorded waits for an engine, and servers are not to live on
// meanwhile.
func (k *runRecord) guard(ctx context.Context, engine int, beside *guest) func(kill func() error) (stop func()) {
	if k == nil {
		return nil
	}
	return func(kill func() error) func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			if proc.AwaitEnd(ctx, engine) != nil || ctx.Err() != nil {
				return // the box ended first, or nobody can know
			}
			k.lost.Store(true)
			_ = kill() // of one that has ended it is nothing
			beside.cut()
		}()
		return cancel
	}
}

// ended keeps how it ended, and is err with why, if the engine was lost.
func (k *runRecord) ended(ctx context.Context, status int, err error) error {
	if k == nil {
		return err
	}
	k.run.Ended, k.run.Status = time.Now().UTC(), status
	var exit *exitError
	switch {
	case k.lost.Load():
		k.run.Cause = "the engine was lost"
		err = &exitError{code: codeFailed, err: errors.New("the engine was lost, and the box ended with it"), hint: "\"ringfence sessions resume " + k.run.ID + "\" goes on"}
	case errors.As(err, &exit):
		k.run.Status = exit.code
	case err != nil:
		k.run.Status, k.run.Cause = codeFailed, err.Error()
	case interrupted(ctx):
		k.run.Cause = "interrupted"
	}
	saved := session.SaveRun(k.dir, k.run)
	if k.held != nil {
		saved = errors.Join(saved, k.held.screen.save(filepath.Join(k.dir, k.run.ID)))
		_ = os.Remove(k.run.Socket) // it is that of nobody now
	}
	return errors.Join(err, saved)
}

// again are the arguments that go on with r.
func again(r session.Run) []string {
	verb := slices.IndexFunc(r.Argv, func(a string) bool { return a == "run" || a == "start" })
	if verb < 0 {
		return slices.Clone(r.Argv)
	}
	// What comes before the agent, or the command, is ours; what comes after is theirs, and
	// stays as it is, whatever it is called.
	end := slices.Index(r.Argv[verb:], "--")
	if i := slices.Index(r.Argv[verb:], r.Agent); r.Agent != "" && i > 0 && r.Argv[verb] == "run" && (end < 0 || i < end) {
		end = i
	}
	end += verb
	if end < verb {
		end = len(r.Argv)
	}
	ours := slices.Clone(r.Argv[verb+1 : end])
	ours = slices.DeleteFunc(ours, func(a string) bool { return a == "--detach" || strings.HasPrefix(a, "--resumes=") })
	if i := slices.Index(ours, "--fresh"); i >= 0 {
		ours[i] = "--workspace=" + r.Workspace
	}
	if r.Agent != "" && !slices.Contains(ours, "--continue") {
		ours = slices.Insert(ours, 0, "--continue")
	}
	ours = slices.Insert(ours, 0, "--resumes="+r.ID)
	return slices.Concat(r.Argv[:verb+1], ours, r.Argv[end:])
}
