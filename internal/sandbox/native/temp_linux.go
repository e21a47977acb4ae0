package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
)

// A box without mounts of its own has no /tmp of its own either, and that of the machine it
// may not change. It gets a directory there that nobody else may enter, which its programs
// know as TMPDIR. The directory goes with the box.

// tempPrefix begins the names of these directories; what follows says whose they are.
const tempPrefix = "ringfence-box-"

const (
	maxStale  = 64                     // directories of dead processes that are looked at
	tempPause = 200 * time.Millisecond // between looks at how full it is, at least
)

// makeTemp makes the directory and has the plan give it to the program.
func (b *builder) makeTemp(p *plan) error {
	set := func(e string) (string, bool) { return strings.CutPrefix(e, "TMPDIR=") }
	for _, e := range p.env {
		if dir, ok := set(e); ok && slices.ContainsFunc(p.hold.writable, func(w string) bool { return beneath(dir, w) }) {
			return nil // it was given one
		}
	}
	base, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return fmt.Errorf("making a directory for temporary files: %w", err)
	}
	clearStale(base)
	name, err := cgroup.NewName()
	if err != nil {
		return err
	}
	dir := filepath.Join(base, tempPrefix+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making a directory for temporary files: %w; set TMPDIR to a directory that may be written", err)
	}
	b.box.temp, b.box.tempSize = dir, smallTmpSize
	if b.spec.Profile.Wide() {
		b.box.tempSize = tmpSize
	}
	p.env = append(slices.DeleteFunc(slices.Clone(p.env), func(e string) bool { _, ok := set(e); return ok }), "TMPDIR="+dir)
	if p.hold.names {
		p.hold.writable = append(p.hold.writable, dir)
	}
	p.grants = append(p.grants, b.plainGrant(node{path: dir, write: true}))
	return nil
}

// clearStale removes such directories of ours whose boxes died with who had made them.
func clearStale(base string) {
	all, err := filepath.Glob(filepath.Join(base, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range all[:min(len(all), maxStale)] {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Getuid() && cgroup.OwnerDead(strings.TrimPrefix(filepath.Base(dir), tempPrefix)) {
			_ = removeTemp(dir) // the next box tries again
		}
	}
}

// removeTemp removes a directory in which a box could write. Nothing in it is followed.
func removeTemp(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// A directory that its owner closed to himself. It is opened before it is listed.
	_ = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// watchTemp ends the box when there is more in its directory than may be. The kernel has no
// limit for that; so it is looked at again and again, and what comes between is more. It
// returns when the box has ended.
func (b *box) watchTemp() {
	if b.temp == "" {
		return
	}
	root, err := os.OpenRoot(b.temp)
	if err != nil {
		return // it has ended
	}
	defer root.Close()
	for pause := tempPause; ; {
		select {
		case <-b.reaped:
			return
		case <-time.After(pause):
		}
		begin := time.Now()
		if bytes, files := b.usedIn(root); bytes > b.tempSize || files > ownInodes {
			b.mu.Lock()
			b.keep(sandbox.Denial{
				Op: "write", Object: b.temp, Observed: true, Count: 1,
				Rule: fmt.Sprintf("a box has %d bytes and %d files for temporary files; it was ended", b.tempSize, ownInodes),
			})
			b.mu.Unlock()
			b.kill(sandbox.CauseKill)
			return
		}
		pause = max(tempPause, 10*time.Since(begin))
	}
}

// blocksOf returns what a file takes.
func blocksOf(d fs.DirEntry) int64 {
	if fi, err := d.Info(); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			return st.Blocks * 512
		}
	}
	return 0
}

// usedIn returns what the files beneath root take, and how many there are, as far as it
// gets before the box ends or to more than there may be.
func (b *box) usedIn(root *os.Root) (bytes int64, files int) {
	_ = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		select {
		case <-b.reaped:
			return fs.SkipAll
		default:
		}
		if files++; files > ownInodes {
			return fs.SkipAll
		}
		if err == nil && !d.IsDir() { // else it is gone, or closed
			bytes += blocksOf(d)
		}
		return nil
	})
	return bytes, files
}
