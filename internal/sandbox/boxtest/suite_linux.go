package boxtest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

//go:embed testdata/*.c testdata/probe.h
var sources embed.FS

// A suite is what all cases of one Check share.
type suite struct {
	tier  sandbox.Tier
	o     Options
	dir   string
	probe string // as "outside", the program of the world
	setID string // the same with the set-user-ID bit
	bait  int    // a descriptor that a careless tier lets its boxes inherit
	// absent are the programs that a case needs and boxes do not have.
	absent map[string]bool
}

func newSuite(ctx context.Context, tier sandbox.Tier, o Options) (*suite, error) {
	s := &suite{tier: tier, o: o, bait: -1}
	var err error
	if s.dir, err = os.MkdirTemp(o.Dir, "bxsuite-"); err != nil {
		return nil, err
	}
	err = os.Chmod(s.dir, 0o755) //nolint:gosec // G302: boxes of other users start the probe in it
	if err := errors.Join(err, s.compile(ctx), s.layBait()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// compile makes the probe from its sources.
func (s *suite) compile(ctx context.Context) error {
	src := filepath.Join(s.dir, "src")
	if err := os.Mkdir(src, 0o700); err != nil {
		return err
	}
	names, err := fs.Glob(sources, "testdata/*")
	if err != nil {
		return err
	}
	s.probe, s.setID = filepath.Join(s.dir, "outside"), filepath.Join(s.dir, "setuid")
	args := []string{"-static", "-O1", "-o", s.probe}
	for _, name := range names {
		text, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		file := filepath.Join(src, filepath.Base(name))
		if err := put(file, string(text), 0o644); err != nil {
			return err
		}
		if filepath.Ext(file) == ".c" {
			args = append(args, file)
		}
	}
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the probe (on Debian: sudo apt-get install gcc libc6-dev): %w: %s", err, out)
	}
	program, err := os.ReadFile(s.probe)
	if err != nil {
		return err
	}
	err = os.Chmod(s.probe, 0o755) //nolint:gosec // G302: boxes of other users start it
	return errors.Join(err, put(s.setID, string(program), 0o755), os.Chmod(s.setID, 0o755|fs.ModeSetuid))
}

// layBait opens a descriptor without the flag that closes it in programs.
func (s *suite) layBait() error {
	name := filepath.Join(s.dir, "bait")
	if err := put(name, "canary-bait\n", 0o644); err != nil {
		return err
	}
	var err error
	s.bait, err = unix.Open(name, unix.O_RDONLY, 0)
	return err
}

func (s *suite) close() error {
	if s.bait >= 0 {
		unix.Close(s.bait)
	}
	return os.RemoveAll(s.dir)
}

// all runs the cases, in as many boxes at once as the options say. The outcomes are
// in the order of the cases.
func (s *suite) all(ctx context.Context, runs []run) ([]Outcome, error) {
	s.absent = lookHere(runs)
	if s.o.Image {
		var err error
		if s.absent, err = s.lookIn(ctx, runs); err != nil {
			return nil, err
		}
	}
	outcomes, errs := make([]Outcome, len(runs)), make([]error, len(runs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(1, s.o.Workers) {
		workers.Go(func() {
			for i := range next {
				outcomes[i], errs[i] = s.one(ctx, runs[i])
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes, errors.Join(errs...)
}

// put makes a file with text in it and this mode, whatever the umask is.
func put(name, text string, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
