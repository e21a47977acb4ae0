package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A remnant is what commands could leave behind on this machine.
type remnant struct{ processes, files, descriptors []string }

// remains looks for processes of our program, but for the engine and us, for files of
// the person and of ringfence, and for what the engine has open.
func (p *place) remains(engine int) (r remnant) {
	p.t.Helper()
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", engine))
	if err != nil {
		p.t.Fatal(err)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == exe && l != fmt.Sprintf("/proc/%d/exe", engine) && l != fmt.Sprintf("/proc/%d/exe", os.Getpid()) {
			r.processes = append(r.processes, l)
		}
	}
	err = filepath.WalkDir(filepath.Dir(p.own), func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was there a moment ago
		}
		if !strings.Contains(name, "/ledger/") { // of the record, "ledger verify" says whether it is whole
			r.files = append(r.files, name)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", engine))
	for _, o := range open {
		if to, err := os.Readlink(o); err == nil {
			kind, _, _ := strings.Cut(to, "[") // sockets have numbers
			r.descriptors = append(r.descriptors, kind)
		}
	}
	slices.Sort(r.descriptors)
	return r
}

// engine returns the number of the engine's process.
func (p *place) engine() int {
	p.t.Helper()
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, n := range names {
		env, err := os.ReadFile(n)
		line, _ := os.ReadFile(filepath.Dir(n) + "/cmdline")
		if err == nil && bytes.Contains(env, []byte("RINGFENCE_HOME="+p.own+"\x00")) && bytes.Contains(line, []byte("\x00engine\x00run\x00")) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(n))); err == nil {
				return pid
			}
		}
	}
	p.t.Fatal("no engine runs")
	return 0
}

// groups lists the control groups that one of the processes has made.
func groups(makers map[int]bool) (left []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, e fs.DirEntry, err error) error {
		if words := strings.Split(filepath.Base(name), "-"); err == nil && e.IsDir() && strings.HasPrefix(words[0], "ringfence") && len(words) == 5 {
			if pid, err := strconv.Atoi(words[2]); err == nil && makers[pid] {
				left = append(left, name)
			}
		}
		return nil // they come and go
	})
	return left
}

// TestManyCommands: commands run in boxes one after the other and at once, each works,
// is on record, and leaves nothing. RINGFENCE_BOX_STARTS is how many after the other;
// a seventh of it, at most 64, run at once.
func TestManyCommands(t *testing.T) {
	inRow, atOnce := 12, 8
	if text := os.Getenv("RINGFENCE_BOX_STARTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("RINGFENCE_BOX_STARTS is %q", text)
		}
		inRow, atOnce = n, min(64, n/7+1)
	}
	p := newPlace(t)
	temp := filepath.Dir(p.own) + "/temp"
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "TMPDIR="+temp)
	rules := p.policy("The agent may read files in the workspace.", "The agent may run printf and sh.", "Everything else is forbidden.")
	var mu sync.Mutex
	makers := map[int]bool{}
	once := func(n int) {
		var out, errs bytes.Buffer
		c := p.command("exec", "--ask", "never", "--policy", rules, "--", "sh", "-c", fmt.Sprintf("printf %%s %d", n))
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Start(); err != nil {
			t.Error(err)
			return
		}
		overdue := time.AfterFunc(2*time.Minute, func() { _ = c.Process.Kill() })
		defer overdue.Stop()
		if err := c.Wait(); err != nil || out.String() != strconv.Itoa(n) {
			t.Errorf("command %d: %v: %q %s", n, err, out.String(), errs.String())
		}
		mu.Lock()
		defer mu.Unlock()
		makers[c.Process.Pid] = true
	}
	once(0)
	engine := p.engine()
	before := p.settled(engine, func(r remnant) bool {
		return !slices.ContainsFunc(r.files, func(f string) bool { return strings.Contains(f, "/sessions/") })
	})
	for n := range inRow {
		once(n + 1)
	}
	p.same(engine, before, fmt.Sprintf("after %d commands", inRow))
	var all sync.WaitGroup
	for n := range atOnce {
		all.Go(func() { once(inRow + n + 1) })
	}
	all.Wait()
	p.same(engine, before, fmt.Sprintf("after %d at once", atOnce))
	if left := groups(makers); len(left) > 0 {
		t.Errorf("control groups are left: %v", left)
	}
	p.ok("ledger", "verify")
	record, want := p.ok("ledger", "show", "--json"), inRow+atOnce+1
	if boxes, results := strings.Count(record, `"type":"box"`), strings.Count(record, `"type":"result"`); boxes != want || results != want {
		t.Errorf("of %d commands %d boxes and %d results are on record", want, boxes, results)
	}
}

// settled looks until what remains is as it should be, or that takes too long: the
// engine may still be about to end what a client had.
func (p *place) settled(engine int, good func(remnant) bool) remnant {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if now := p.remains(engine); good(now) || time.Now().After(deadline) {
			return now
		}
	}
}

// same reports what is there now and was not before.
func (p *place) same(engine int, before remnant, when string) {
	p.t.Helper()
	now := p.settled(engine, func(r remnant) bool {
		return slices.Equal(r.processes, before.processes) && slices.Equal(r.files, before.files) && len(r.descriptors) <= len(before.descriptors)
	})
	for what, lists := range map[string][2][]string{"processes": {before.processes, now.processes}, "files": {before.files, now.files}} {
		if !slices.Equal(lists[0], lists[1]) {
			p.t.Errorf("%s: of %s there were %q, there are %q", when, what, lists[0], lists[1])
		}
	}
	if len(now.descriptors) > len(before.descriptors) {
		p.t.Errorf("%s: the engine had %q open, and has %q", when, before.descriptors, now.descriptors)
	}
}
