package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The labels of a container, which say whose it is. They are a lease: when the
// process that they name is gone, so may be the container.
const (
	labelHome    = "ringfence.home"
	labelMachine = "ringfence.machine"
	labelPID     = "ringfence.pid"
	labelBoot    = "ringfence.boot"
	labelStart   = "ringfence.start"
	labelSpace   = "ringfence.pidns"
	labelMark    = "ringfence.mark" // which watcher removes it
)

// An owner is a process, told apart from all others before and after it.
type owner struct {
	pid   int
	boot  string // id of the boot of the machine
	start string // when the process started
	space string // the pid namespace in which it has its number
}

// lease returns the labels of a container of this process.
func (o Options) lease() (map[string]string, error) {
	me, err := identify()
	if err != nil {
		return nil, err
	}
	machine, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this machine: %w", err)
	}
	return map[string]string{
		labelHome: o.home(), labelMachine: machine,
		labelPID: strconv.Itoa(me.pid), labelBoot: me.boot, labelStart: me.start, labelSpace: me.space,
	}, nil
}

// home is what the label says. A label without a value would match any.
func (o Options) home() string {
	if o.Home == "" {
		return "-"
	}
	return o.Home
}

// Sweep removes the containers of the same home and machine whose owner is gone,
// and what was left of setting them up, and returns how many there were. What
// belongs to living processes stays, and what belongs to those of which that
// cannot be told. Where no engine answers nothing is removed, which is no error: who
// uses the tier is told.
func (t *Tier) Sweep(ctx context.Context) (removed int, err error) {
	removed, err = t.sweep(ctx)
	if err := errors.Join(err, t.o.sweepDirs()); err != nil {
		return removed, fmt.Errorf("removing containers that were left: %w", err)
	}
	return removed, nil
}

func (t *Tier) sweep(ctx context.Context) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	me, err := identify()
	if err != nil {
		return 0, err
	}
	machine, err := os.Hostname()
	if err != nil {
		return 0, fmt.Errorf("naming this machine: %w", err)
	}
	e, err := t.connect(ctx)
	if err != nil {
		return 0, nil // nothing can be removed, and who uses the tier next is told why
	}
	list, err := e.labelled(ctx, labelHome+"="+t.o.home())
	if err != nil {
		t.forget()
		return 0, err
	}
	var failed []error
	for _, c := range list {
		if c.Labels[labelMachine] != machine || !isDead(c.Labels, me) {
			continue
		}
		if err := e.remove(ctx, c.ID); err != nil {
			failed = append(failed, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(failed...)
}

// isDead reports whether the owner that labels name is gone. After another boot it
// is; in another pid namespace its number says nothing to us.
func isDead(labels map[string]string, me owner) bool {
	pid, err := strconv.Atoi(labels[labelPID])
	o := owner{pid: pid, boot: labels[labelBoot], start: labels[labelStart], space: labels[labelSpace]}
	switch {
	case err != nil || pid <= 0 || o.boot == "" || o.start == "":
		return false
	case o.boot != me.boot:
		return true
	case o.space != me.space:
		return false
	}
	return !o.lives()
}

// A directory that a box is set up in is called dirPrefix and then, with dashes,
// the number of the owner's pid namespace, his own, and when he started.
const dirPrefix = "ringfence-box-"

func (o Options) tempDir() string {
	if o.Dir == "" {
		return os.TempDir()
	}
	return o.Dir
}

// makeDir makes a directory to set a box up in, which is open to us alone.
func (o Options) makeDir() (string, error) {
	me, err := identify()
	if err != nil {
		return "", err
	}
	space := strings.Trim(me.space, "pid:[]")
	return os.MkdirTemp(o.tempDir(), fmt.Sprintf("%s%s-%d-%s-*", dirPrefix, space, me.pid, me.start))
}

// sweepDirs removes our directories of boxes whose owner is gone.
func (o Options) sweepDirs() error {
	me, err := identify()
	if err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(o.tempDir(), dirPrefix+strings.Trim(me.space, "pid:[]")+"-*"))
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		words := strings.Split(strings.TrimPrefix(filepath.Base(name), dirPrefix), "-")
		if len(words) != 4 {
			continue
		}
		pid, err := strconv.Atoi(words[1])
		fi, statErr := os.Lstat(name)
		if err != nil || statErr != nil || !fi.IsDir() || !isOurs(fi) {
			continue
		}
		if was := (owner{pid: pid, start: words[2]}); !was.lives() {
			failed = append(failed, os.RemoveAll(name))
		}
	}
	return errors.Join(failed...)
}

func isOurs(fi os.FileInfo) bool {
	uid, _, _ := ownership(fi)
	return uid == uint64(os.Geteuid())
}
