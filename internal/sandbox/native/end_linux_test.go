package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

// A scene is what boxes could leave behind on this machine.
type scene struct {
	descriptors, mounts, groups, files []string
	goroutines                         int
}

func look(t *testing.T) scene {
	t.Helper()
	s := scene{goroutines: runtime.NumGoroutine()}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, os.TempDir()) {
			s.mounts = append(s.mounts, line)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			s.descriptors = append(s.descriptors, fd.Name()+" "+to)
		}
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, "/ringfence.") && strings.Contains(path, fmt.Sprintf("-%d-", os.Getpid())) && err == nil {
			s.groups = append(s.groups, path)
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(os.TempDir(), func(path string, _ os.DirEntry, err error) error {
		s.files = append(s.files, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check reports what is there now and was not before, and every child of ours.
func (s scene) check(t *testing.T, what string) {
	t.Helper()
	now := look(t)
	for _, now := range [][2][]string{{s.mounts, now.mounts}, {s.groups, now.groups}, {s.files, now.files}} {
		if !slices.Equal(now[0], now[1]) {
			t.Errorf("%s: there was %q, there is %q", what, now[0], now[1])
		}
	}
	if len(now.descriptors) > len(s.descriptors) {
		t.Errorf("%s: open is %q, it was %q", what, now.descriptors, s.descriptors)
	}
	if left := append(children(t), marked(fmt.Sprintf("NATIVE_TEST=%dmany", os.Getpid()))...); len(left) > 0 {
		t.Errorf("%s: processes left: %v", what, left)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > s.goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			b := make([]byte, 64<<10)
			t.Fatalf("%s: there were %d goroutines, there are %d:\n%s", what, s.goroutines, runtime.NumGoroutine(), b[:runtime.Stack(b, true)])
		}
	}
}

// children lists our own children, which are the stages of boxes.
func children(t *testing.T) []string {
	t.Helper()
	var all []string
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		if b, err := os.ReadFile(l); err == nil {
			all = append(all, strings.Fields(string(b))...)
		}
	}
	return all
}

// marked lists the processes that have marker in their environment and are not about
// to be gone.
func marked(marker string) (left []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.Contains(string(b), marker) {
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(n), "status"))
			if _, pending, _ := strings.Cut(string(status), "SigPnd:\t"); !strings.HasPrefix(pending, "0000000000000100") {
				left = append(left, n)
			}
		}
	}
	return left
}

func await(t *testing.T, r io.Reader, word string) {
	t.Helper()
	buf := make([]byte, 256)
	for seen := ""; !strings.Contains(seen, word); {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
}

// B4, N4: whatever ends the box, the tree is gone: also what ignores signals, is in
// another session, and has lost its parents twice.
func TestNothingSurvives(t *testing.T) {
	tree := `(trap '' HUP INT TERM; sleep 1000 & set -m; sleep 1000 & wait) & (sleep 1000 &)
		setsid sh -c 'setsid sh -c "trap \"\" TERM HUP; sleep 1000 & sleep 1000" & exit' & `
	for kind, tier := range kinds {
		for name, end := range map[string]struct {
			tail string
			wall time.Duration
			do   func(sandbox.Box, context.CancelFunc)
			want sandbox.Exit
		}{
			"exit":     {"echo ready; exit 3", 0, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseExit, Code: 3}},
			"signal":   {"echo ready; kill -11 $$", 0, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseSignal, Signal: 11}},
			"asked":    {"trap 'exit 5' TERM; echo ready; wait", 0, func(b sandbox.Box, _ context.CancelFunc) { _ = b.Terminate() }, sandbox.Exit{Cause: sandbox.CauseExit, Code: 5}},
			"kill":     {"echo ready; wait", 0, func(b sandbox.Box, _ context.CancelFunc) { b.Kill() }, sandbox.Exit{Cause: sandbox.CauseKill}},
			"context":  {"echo ready; wait", 0, func(_ sandbox.Box, c context.CancelFunc) { c() }, sandbox.Exit{Cause: sandbox.CauseKill}},
			"deadline": {"echo ready; wait", 300 * time.Millisecond, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseDeadline}},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := sh(tree + end.tail)
				s.Limits.Wall = end.wall
				marker := fmt.Sprintf("NATIVE_TEST=%d%s%s", os.Getpid(), kind, name)
				s.Env = append(s.Env, marker)
				b, err := tier.Start(ctx, s)
				if err != nil {
					t.Fatal(err)
				}
				await(t, b.Stdout(), "ready")
				end.do(b, cancel)
				exit, err := b.Wait()
				if err != nil || exit != end.want {
					t.Errorf("%v, %v, want %v", exit, err, end.want)
				}
				if _, err := io.ReadAll(b.Stdout()); err != nil {
					t.Error(err)
				}
				if left := marked(marker); len(left) > 0 {
					t.Errorf("still running: %v", left)
				}
				if err := errors.Join(b.Kill(), b.Signal(15)); err != nil {
					t.Errorf("after the end: %v", err)
				}
			})
		}
	}
}

// The box ends with the caller, even when he is killed, and when its stage is at the same
// moment: a caller that is stopped can do nothing about it.
func TestDiesWithCaller(t *testing.T) {
	for kind, tier := range kinds {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", kind, both), func(t *testing.T) {
				if marker := os.Getenv("NATIVE_TEST_CALLER"); marker != "" {
					s := sh("setsid sh -c 'setsid sleep 1000 & sleep 1000 & wait' & sleep 0; echo ready; sleep 1000")
					s.Env = append(s.Env, marker)
					s.Stdout = os.Stdout
					if _, err := tier.Start(t.Context(), s); err != nil {
						t.Fatal(err)
					}
					select {}
				}
				diesWithCaller(t, both)
			})
		}
	}
}

func diesWithCaller(t *testing.T, both bool) {
	marker := fmt.Sprintf("NATIVE_TEST=%d%s", os.Getpid(), t.Name())
	name := strings.ReplaceAll(t.Name(), "/", "$/^")
	caller := exec.Command(self, "-test.run=^"+name+"$")
	caller.Env = []string{"NATIVE_TEST_CALLER=" + marker, "TMPDIR=" + os.TempDir(), "NATIVE_TEST_STAGE=" + os.Getenv("NATIVE_TEST_STAGE")}
	out, err := caller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, out, "ready")
	if len(marked(marker)) == 0 {
		t.Fatal("nothing runs that could end")
	}
	if both {
		stages, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", caller.Process.Pid))
		if err != nil || caller.Process.Signal(syscall.SIGSTOP) != nil {
			t.Fatal(err)
		}
		for _, list := range stages {
			b, _ := os.ReadFile(list) // a thread that has ended has no children
			for pid := range strings.FieldsSeq(string(b)) {
				n, err := strconv.Atoi(pid)
				if err := errors.Join(err, syscall.Kill(n, syscall.SIGKILL)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	caller.Process.Kill()
	caller.Wait()
	for deadline := time.Now().Add(10 * time.Second); len(marked(marker)) > 0; {
		if time.Now().After(deadline) {
			left := marked(marker)
			for _, p := range left {
				if n, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			t.Fatalf("outlived the caller: %v", left)
		}
	}
}

// starts says how many boxes are started one after the other, and how many at once:
// RINGFENCE_BOX_STARTS is the first, and a seventh of it, at most 64, the second.
func starts(t *testing.T) (inRow, atOnce int) {
	text := os.Getenv("RINGFENCE_BOX_STARTS")
	if text == "" {
		return 40, 16
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("RINGFENCE_BOX_STARTS is %q", text)
	}
	return n, min(64, n/7+1)
}

// Boxes leave nothing behind, one after the other and at once.
func TestNothingIsLeftBehind(t *testing.T) {
	inRow, atOnce := starts(t)
	for kind, tier := range kinds {
		w := dir(t)
		for _, mode := range []sandbox.Mode{sandbox.NoAccess, sandbox.ReadWrite} {
			s := sh("echo $$ >/dev/null; exit 9")
			s.Env = append(s.Env, fmt.Sprintf("NATIVE_TEST=%dmany", os.Getpid()))
			if mode == sandbox.ReadWrite {
				s = sh("echo $$ >own-$$; rm own-$$; exit 9")
				s.Workspace = sandbox.Workspace{Path: w, Mode: mode}
			}
			if kind == "plain" && os.Getuid() != 0 {
				s.Limits.Processes = sandbox.Unlimited // it would be one of all boxes together: the report says so
			}
			one(t, tier, s) // what the runtime opens once
			before := look(t)
			for range inRow {
				one(t, tier, s)
			}
			before.check(t, fmt.Sprintf("%s %s: after %d boxes", kind, mode, inRow))
			var all sync.WaitGroup
			for range atOnce {
				all.Go(func() { one(t, tier, s) })
			}
			all.Wait()
			before.check(t, fmt.Sprintf("%s %s: after %d at once", kind, mode, atOnce))
		}
	}
}

func one(t *testing.T, tier Tier, s sandbox.Spec) {
	b, err := tier.Start(t.Context(), s)
	if err != nil {
		t.Error(err)
		return
	}
	exit, err := b.Wait()
	if err != nil || exit.Code != 9 {
		t.Errorf("%v %v", exit, err)
	}
	b.Stdin().Close()
	for _, r := range []io.Reader{b.Stdout(), b.Stderr()} {
		r.(*os.File).Close()
	}
}
