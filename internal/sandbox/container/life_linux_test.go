package container

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/pty"
)

func sh(script string) sandbox.Spec {
	return sandbox.Spec{Argv: []string{"/bin/sh", "-c", script}}
}

// eachMode runs f for every engine, with our init and without.
func eachMode(t *testing.T, f func(t *testing.T, tier *Tier)) {
	for name, tier := range engines(t) {
		for _, elsewhere := range []bool{false, true} {
			mode := map[bool]string{false: "local", true: "remote"}[elsewhere]
			t.Run(name+"/"+mode, func(t *testing.T) {
				tier := New(tier.o)
				tier.elsewhere, tier.o.Dir = elsewhere, t.TempDir()
				f(t, tier)
				nothingLeft(t, tier)
			})
		}
	}
}

// B4: whatever ends the box, it is gone, and says by what it ended.
func TestEnds(t *testing.T) {
	deaf := "(trap '' HUP INT TERM; sleep 1000 & wait) & "
	for name, end := range map[string]struct {
		tail string
		wall time.Duration
		do   func(sandbox.Box, context.CancelFunc)
		want sandbox.Exit
	}{
		"asked":    {"trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done", 0, func(b sandbox.Box, _ context.CancelFunc) { _ = b.Terminate() }, sandbox.Exit{Cause: sandbox.CauseExit, Code: 5}},
		"signal":   {"trap 'exit 6' USR1; echo ready; while :; do sleep 0.1; done", 0, func(b sandbox.Box, _ context.CancelFunc) { _ = b.Signal(10) }, sandbox.Exit{Cause: sandbox.CauseExit, Code: 6}},
		"kill":     {"echo ready; wait", 0, func(b sandbox.Box, _ context.CancelFunc) { _ = b.Kill() }, sandbox.Exit{Cause: sandbox.CauseKill}},
		"context":  {"echo ready; wait", 0, func(_ sandbox.Box, c context.CancelFunc) { c() }, sandbox.Exit{Cause: sandbox.CauseKill}},
		"deadline": {"echo ready; wait", 2 * time.Second, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseDeadline}},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, tier *Tier) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := sh("echo $$; " + deaf + end.tail)
				s.Limits.Wall = end.wall
				b, err := tier.Start(ctx, s)
				if err != nil {
					t.Fatal(err)
				}
				awaitText(t, b.Stdout(), "ready")
				end.do(b, cancel)
				exit, err := b.Wait()
				if err != nil || exit != end.want {
					t.Errorf("%v, %v, want %v", exit, err, end.want)
				}
				if _, err := io.Copy(io.Discard, b.Stdout()); err != nil {
					t.Errorf("the stream does not end: %v", err)
				}
				if err := errors.Join(b.Kill(), b.Signal(15), b.Terminate()); err != nil {
					t.Errorf("after the end: %v", err)
				}
			})
		})
	}
}

// awaitText reads until text has come.
func awaitText(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var seen strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(seen.String(), text) {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q, %v, want %q", seen.String(), err, text)
		}
	}
}

// complete reports whether nothing is missing in r but what a Docker on another kernel
// cannot be asked for.
func complete(r sandbox.Report) bool {
	if !slices.Contains(r.Inferred, sandbox.LayerContainer) {
		return r.Complete()
	}
	return r.Confines() && !slices.ContainsFunc(r.Missing, func(l string) bool { return l != LayerMountOptions })
}

// K2: the program runs if, and only if, Confirm agrees.
func TestConfirm(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		dir := world(t, boxCase{})
		s := sh("touch ran")
		s.Workspace, s.LaterWritable = sandbox.Workspace{Path: dir + "/ws", Mode: sandbox.ReadWrite}, true
		no := errors.New("no")
		s.Confirm = func(r sandbox.Report) error {
			if !complete(r) || r.Image == "" {
				t.Errorf("Confirm is given %s", r)
			}
			if _, err := os.Stat(dir + "/ws/ran"); err == nil {
				t.Error("the program ran before")
			}
			return no
		}
		if _, err := tier.Start(t.Context(), s); !errors.Is(err, no) || !errors.Is(err, sandbox.ErrNotBuilt) {
			t.Errorf("%v, want that of Confirm, and ErrNotBuilt", err)
		}
		if _, err := os.Stat(dir + "/ws/ran"); err == nil {
			t.Error("the program ran")
		}
		s.Confirm = func(sandbox.Report) error { return nil }
		if _, err := sandbox.Run(t.Context(), tier, s, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir + "/ws/ran"); err != nil {
			t.Error("the program did not run")
		}
	})
}

// K1: what we leave behind when we are killed is gone within seconds, whether the engine is
// on our kernel or not; what lives is left alone.
func TestOwnerDies(t *testing.T) {
	if os.Getenv("CONTAINER_TEST_OWNER") != "" {
		own(t)
	}
	eachMode(t, func(t *testing.T, tier *Tier) {
		living, err := tier.Start(t.Context(), sh("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		owner := startOwner(t, tier, "watched")
		if n := len(left(t, tier)); n != 2 {
			t.Errorf("%d containers, want 2", n)
		}
		if n, err := tier.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("%d swept of the living, %v", n, err)
		}
		owner.Process.Kill()
		began := time.Now()
		await(t, 20*time.Second, "the container outlives its owner", func() bool { return len(left(t, tier)) == 1 })
		t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
		owner.Wait()
		if e, err := tier.connect(t.Context()); err != nil || running(t, e, tier) != 1 {
			t.Errorf("the living box does not run, %v", err)
		}
		if err := living.Kill(); err != nil {
			t.Error(err)
		}
		awaitDirs(t, tier)
	})
}

// K1: where what watches us was killed with us, who starts the next box removes the
// container, also while nobody has asked how we ended.
func TestOwnerDiesUnwatched(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		owner := startOwner(t, tier, "unwatched")
		owner.Process.Kill()
		defer owner.Wait()
		e, err := tier.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !tier.elsewhere { // its init is ours, and sees us go
			await(t, 20*time.Second, "the box outlives its owner", func() bool { return running(t, e, tier) == 0 })
		}
		if n := len(left(t, tier)); n != 1 {
			t.Fatalf("%d containers, want that of the dead", n)
		}
		next, err := tier.Start(t.Context(), sh("sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		await(t, 20*time.Second, "the container is not removed", func() bool { return len(left(t, tier)) == 1 })
		if n := running(t, e, tier); n != 1 {
			t.Errorf("%d boxes run, want the new one", n)
		}
		if err := next.Kill(); err != nil {
			t.Error(err)
		}
		awaitDirs(t, tier)
	})
}

// own is a process that has a box, until it is killed.
func own(t *testing.T) {
	tier := New(Options{Socket: os.Getenv("OWNER_SOCKET"), Image: os.Getenv("RINGFENCE_TEST_IMAGE"), Home: os.Getenv("OWNER_HOME"), Init: os.Getenv("OWNER_INIT"), Dir: os.Getenv("OWNER_DIR")})
	tier.elsewhere = os.Getenv("OWNER_ELSEWHERE") == "true"
	if _, err := tier.Start(context.Background(), sh("sleep 1000")); err != nil {
		t.Fatal(err)
	}
	for _, w := range tier.watchers {
		if os.Getenv("CONTAINER_TEST_OWNER") == "unwatched" {
			w.process.Kill()
			<-w.ended
		}
	}
	_, _ = os.Stdout.WriteString("ready\n")
	select {}
}

func startOwner(t *testing.T, tier *Tier, how string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOwnerDies$")
	cmd.Env = append(os.Environ(), "CONTAINER_TEST_OWNER="+how, "OWNER_ELSEWHERE="+strconv.FormatBool(tier.elsewhere),
		"OWNER_SOCKET="+tier.o.Socket, "OWNER_HOME="+tier.o.Home, "OWNER_INIT="+tier.o.Init, "OWNER_DIR="+tier.o.Dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, out, "ready")
	return cmd
}

// await asks the engine until something is so.
func await(t *testing.T, most time.Duration, not string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !so(); {
		if time.Now().After(deadline) {
			t.Fatal(not)
		}
	}
}

// awaitDirs waits for what is removed after the last container.
func awaitDirs(t *testing.T, tier *Tier) {
	t.Helper()
	await(t, 20*time.Second, "the directory of a set-up is left", func() bool {
		dirs, err := filepath.Glob(filepath.Join(tier.o.tempDir(), dirPrefix+"*"))
		return err == nil && len(dirs) == 0
	})
}

// running counts the containers of a tier that run.
func running(t *testing.T, e *engine, tier *Tier) (n int) {
	t.Helper()
	for _, c := range left(t, tier) {
		if a, err := e.inspect(t.Context(), c.ID); err == nil && a.State.Running {
			n++
		}
	}
	return n
}

// 1 GiB of output passes through, is counted and is nowhere kept.
func TestMuchOutput(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		size := int64(1 << 30)
		if tier.elsewhere {
			size = 64 << 20 // through the engine, it takes its time
		}
		s := sh("dd if=/dev/zero bs=1048576 count=" + strconv.FormatInt(size>>20, 10) + " 2>/dev/null; echo end >&2")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := sandbox.Run(t.Context(), tier, s, nil)
		runtime.ReadMemStats(&after)
		if err != nil || out.Dropped != size-1<<20 || len(out.Stdout) != 1<<20 || string(out.Stderr) != "end\n" {
			t.Errorf("%d kept, %d dropped, %q, %v, %v", len(out.Stdout), out.Dropped, out.Stderr, out.Exit, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
			t.Errorf("%d bytes were allocated on the way", grown)
		}
	})
}

// The caller's own streams and files reach the program, and stay open.
func TestGivenFiles(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		dir := t.TempDir()
		stdin := fileWith(t, dir+"/in", "input\n")
		stdout := fileWith(t, dir+"/out", "")
		s := sh("cat; echo err >&2")
		s.Stdin, s.Stdout = stdin, stdout
		if !tier.elsewhere {
			s.Argv[2] += "; cat <&3; echo four >&4"
			s.Files = []*os.File{fileWith(t, dir+"/3", "three\n"), fileWith(t, dir+"/4", "")}
		}
		out, err := sandbox.Run(t.Context(), tier, s, []byte("ignored"))
		if err != nil || len(out.Stdout) != 0 || string(out.Stderr) != "err\n" {
			t.Fatalf("%q, %q, %v", out.Stdout, out.Stderr, err)
		}
		want := "input\nthree\n"
		if tier.elsewhere {
			want = "input\n"
		} else if b, _ := os.ReadFile(dir + "/4"); string(b) != "four\n" {
			t.Errorf("descriptor 4 got %q", b)
		}
		if b, _ := os.ReadFile(dir + "/out"); string(b) != want {
			t.Errorf("%q, want %q", b, want)
		}
		if _, err := stdout.WriteString("x"); err != nil {
			t.Errorf("the caller's file: %v", err)
		}
		if tier.elsewhere {
			s.Files = []*os.File{stdin}
			if _, err := tier.Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) {
				t.Errorf("files, elsewhere: %v", err)
			}
		}
	})
}

func fileWith(t *testing.T, name, content string) *os.File {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A terminal becomes the controlling one of a session of its own.
func TestTerminal(t *testing.T) {
	for name, tier := range engines(t) {
		t.Run(name, func(t *testing.T) {
			master, slave, err := pty.Open(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			defer slave.Close()
			s := sh("stty size; echo line >/dev/tty; kill -INT $$; echo not reached")
			s.Stdin, s.Stdout, s.Stderr = slave, slave, slave
			b, err := tier.Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			awaitText(t, master, "line")
			if exit, err := b.Wait(); err != nil || exit != (sandbox.Exit{Cause: sandbox.CauseSignal, Signal: 2}) {
				t.Errorf("%v, %v", exit, err)
			}
		})
	}
}

// What the limits refuse is explained.
func TestDenials(t *testing.T) {
	for name, tier := range engines(t) {
		t.Run(name, func(t *testing.T) {
			for op, script := range map[string]string{
				"memory": "dd if=/dev/zero of=/dev/null bs=400M count=1",
				"fork":   "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do sleep 5 & done",
			} {
				s := sh(script)
				s.Limits.AddressSpace, s.Limits.Processes = sandbox.Unlimited, 8
				b, err := tier.Start(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if exit, err := b.Wait(); err != nil {
					t.Errorf("%s: %v, %v", op, exit, err)
				}
				if d := b.Denials(); len(d) != 1 || d[0].Op != op || !d[0].Observed || d[0].Count < 1 || d[0].Fix == "" {
					t.Errorf("%s: %+v", op, d)
				}
			}
		})
	}
}

func TestProbe(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		r, err := tier.Probe(t.Context())
		if err != nil || !r.Complete() || r.Image == "" || len(r.Enforced) == 0 == !tier.elsewhere {
			t.Errorf("%+v, %v", r, err)
		}
		for _, layer := range append(r.Enforced, r.Inferred...) {
			if name, _, _ := strings.Cut(layer, "="); r.Evidence[name] == "" {
				t.Errorf("no evidence of %s", layer)
			}
		}
	})
}

// An ordinary user who may use the engine can read less of /proc, and has the rest
// from the stage.
func TestOrdinaryUser(t *testing.T) {
	if os.Getenv("CONTAINER_TEST_USER") != "" {
		tier := New(Options{Socket: os.Getenv("OWNER_SOCKET"), Image: os.Getenv("RINGFENCE_TEST_IMAGE"), Home: os.Getenv("OWNER_HOME"), Init: os.Getenv("OWNER_INIT"), Dir: os.Getenv("OWNER_DIR")})
		out, err := sandbox.Run(t.Context(), tier, sh("id -u"), nil)
		if err != nil || string(out.Stdout) != "65534\n" || !out.Report.Has(sandbox.LayerSeccomp) || !out.Report.Has(LayerMounts) {
			t.Errorf("%q, %v, %+v", out.Stdout, err, out.Report)
		}
		return
	}
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to be another user")
		}
		t.Skip("needs root, to be another user")
	}
	for name, tier := range engines(t) {
		t.Run(name, func(t *testing.T) {
			// A door of his own to an engine whose directory is closed to him.
			door := filepath.Join(world(t, boxCase{}), "cache", "door")
			l, err := net.Listen("unix", door)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := os.Chmod(door, 0o666); err != nil {
				t.Fatal(err)
			}
			go relay(l, tier.o.Socket)
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestOrdinaryUser$")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: wsOwner, Gid: wsOwner}}
			cmd.Env = append(os.Environ(), "CONTAINER_TEST_USER=1", "OWNER_SOCKET="+door, "OWNER_HOME="+tier.o.Home, "OWNER_INIT="+tier.o.Init, "OWNER_DIR="+filepath.Dir(door))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			nothingLeft(t, tier)
		})
	}
}

// relay connects who comes to l with a socket.
func relay(l net.Listener, socket string) {
	for {
		a, err := l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("unix", socket)
		if err != nil {
			a.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
				way[1].Close()
			}()
		}
	}
}

// K3: a mount that goes away, because what it stands on is replaced outside, takes
// the box with it.
func TestMountGoesAway(t *testing.T) {
	for name, tier := range engines(t) {
		t.Run(name, func(t *testing.T) {
			dir := world(t, boxCase{make: []string{"held=old", "other=new"}})
			s := sh("echo ready; sleep 1000")
			s.Workspace, s.LaterWritable = sandbox.Workspace{Path: dir + "/ws", Mode: sandbox.ReadWrite}, true
			s.Held = []string{dir + "/ws/held"}
			b, err := tier.Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			awaitText(t, b.Stdout(), "ready")
			if err := os.Rename(dir+"/ws/other", dir+"/ws/held"); err != nil {
				t.Fatal(err)
			}
			exit, err := b.Wait()
			if d := b.Denials(); err != nil || exit.Cause != sandbox.CauseKill || len(d) != 1 || d[0].Op != "mount" {
				t.Errorf("%v, %v, %+v", exit, err, d)
			}
		})
	}
}
