package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native"
	"ringfence/test/rig"
)

const program = "/bin/true" // that boxes are made for

// A scene is a home whose engine runs, with a policy by which any program may run.
type scene struct {
	*rig.Home
	policy string
	log    *os.File // standard error of what is run
	null   *os.File
}

// boxes measures what a box costs, to build and to be in.
func boxes(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(boxRows(ctx, b, h), h.Close())
}

func boxRows(ctx context.Context, b *bench, h *rig.Home) (err error) {
	s := &scene{Home: h}
	if s.policy, err = h.Policy(ctx, "may run any program and read files anywhere", "may do anything in the workspace"); err != nil {
		return err
	}
	if s.log, err = os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return err
	}
	defer s.log.Close()
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	defer s.null.Close()
	conn, err := h.Connect(ctx) // so that the engine runs
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, rows := range []func(context.Context, *bench, *scene) error{setUps, execs, besidePeers, containers, callsInBoxes, largeWorkspace} {
		if err := rows(ctx, b, s); err != nil {
			return err
		}
	}
	return nil
}

// run runs c, which must succeed.
func (s *scene) run(c *exec.Cmd) error {
	c.Stderr = s.log
	err := c.Run()
	if err != nil {
		said, _ := os.ReadFile(s.log.Name())
		err = fmt.Errorf("%s: %w\n%s", c, err, bytes.TrimSpace(said[max(0, len(said)-1000):]))
	}
	return err
}

// exec runs "ringfence exec" with more, and env besides that of the home.
func (s *scene) exec(ctx context.Context, env []string, more ...string) error {
	c := s.Command(ctx, append([]string{"exec", "--ask", "never", "--policy", s.policy}, more...)...)
	c.Env = append(c.Env, env...)
	return s.run(c)
}

// bare runs the program as it is.
func (s *scene) bare(ctx context.Context) error {
	c := exec.CommandContext(ctx, program)
	c.Env, c.Dir = s.Env(), s.Work
	return s.run(c)
}

// spec is a box for argv, with the streams of s.
func (s *scene) spec(profile sandbox.Profile, argv ...string) sandbox.Spec {
	return sandbox.Spec{
		Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, Profile: profile,
		Workspace: sandbox.Workspace{Path: s.Work, Mode: profile.Workspace()},
		Stdin:     s.null, Stdout: s.null, Stderr: s.null,
	}
}

// setUps measures building a box until its program has been executed, in this
// process, beside fork and exec of the program.
func setUps(ctx context.Context, b *bench, s *scene) error {
	for _, profile := range []sandbox.Profile{sandbox.ProfileCommand, sandbox.ProfileAgent} {
		spec := s.spec(profile, program)
		mine, theirs, err := startsInTurn(ctx, b.times(200),
			func() (func() error, error) { return startBox(ctx, spec) },
			func() (func() error, error) {
				c := exec.CommandContext(ctx, program)
				return c.Wait, c.Start()
			})
		if err != nil {
			return fmt.Errorf("building a box, profile %s: %w", profile, err)
		}
		b.add(latency(fmt.Sprintf("box set up with every layer, profile %s", profile), mine, "fork and exec", theirs).
			added(mine, theirs, 15*time.Millisecond))
	}
	return nil
}

// startBox starts spec and returns what waits for its end.
func startBox(ctx context.Context, spec sandbox.Spec) (end func() error, err error) {
	box, err := native.Tier{}.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return func() error { return waitFor(box) }, nil
}

// waitFor waits until box has ended, which must be with status 0.
func waitFor(box sandbox.Box) error {
	exit, err := box.Wait()
	if err == nil && exit.Status() != 0 {
		err = fmt.Errorf("the program in a box ended with %s", exit)
	}
	return err
}

// execs measures the whole of "ringfence exec" beside the command alone.
func execs(ctx context.Context, b *bench, s *scene) error {
	for _, profile := range []string{"command", "agent"} {
		mine, theirs, err := inTurn(ctx, b.times(100),
			func() error { return s.exec(ctx, nil, "--profile", profile, "--", program) },
			func() error { return s.bare(ctx) })
		if err != nil {
			return err
		}
		b.add(latency(execRow+profile, mine, "the command alone", theirs).added(mine, theirs, 20*time.Millisecond))
	}
	return nil
}

const execRow = "exec -- " + program + ", profile "

// containers measures the tier container beside the engine's own client. Both run a
// program of the workspace: what has the same path here and in the image.
func containers(ctx context.Context, b *bench, s *scene) error {
	work := filepath.Join(s.Person, "shared")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Chmod(work, 0o755)); err != nil { //nolint:gosec // containers run as nobody
		return err
	}
	image, own := os.Getenv("RINGFENCE_TEST_IMAGE"), filepath.Join(work, "true")
	for _, e := range []struct{ name, socket, client, to string }{
		{"docker", os.Getenv("RINGFENCE_TEST_DOCKER"), "/usr/bin/docker", "--host"},
		{"podman", os.Getenv("RINGFENCE_TEST_PODMAN"), "/usr/bin/podman", "--url"},
	} {
		if e.socket == "" || image == "" {
			b.leftOut("tier container with %s: no engine of our own runs (scripts/engines.sh)", e.name)
			continue
		}
		_, err := os.Stat(e.client)
		if err == nil {
			err = copyBusybox(own)
		}
		if err != nil {
			b.leftOut("tier container with %s: %v", e.name, err)
			continue
		}
		host := "unix://" + e.socket
		env := []string{"RINGFENCE_DOCKER_IMAGE=" + image, "RINGFENCE_DOCKER_RUNTIME=" + e.name, "DOCKER_HOST=" + host}
		theirs := func() error {
			// Podman asks for more than this machine may allow it.
			c := exec.CommandContext(ctx, e.client, e.to, host, "run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096",
				"--volume", work+":"+work+":ro", "--workdir", work, "--entrypoint", own, image)
			c.Env, c.Dir = s.Env(), s.Work
			return s.run(c)
		}
		if err := theirs(); err != nil {
			b.leftOut("tier container with %s: %v", e.name, err)
			continue
		}
		mine, beside, err := inTurn(ctx, b.times(20),
			func() error { return s.exec(ctx, env, "--tier", "container", "-w", work, "--", own) }, theirs)
		if err != nil {
			return err
		}
		b.add(latency("exec --tier container, "+e.name, mine, e.name+" run --rm of the same image", beside))
	}
	return nil
}

// copyBusybox copies the static busybox that the image is made from, once.
func copyBusybox(to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	text, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, text, 0o600), os.Chmod(to, 0o755)) //nolint:gosec // a program, for nobody
}

// callsInBoxes measures system calls of a program in a box beside those of the same
// program without one.
func callsInBoxes(ctx context.Context, b *bench, s *scene) (err error) {
	bin := filepath.Join(b.dir, "calls")
	if err := rig.GoBuild(ctx, bin, "ringfence/test/bench/testdata/calls"); err != nil {
		return err
	}
	file := filepath.Join(s.Work, "small.txt")
	if err := os.WriteFile(file, []byte("one line of text\n"), 0o600); err != nil {
		return err
	}
	free, err := startFree(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free.close()) }()
	for _, c := range []struct {
		what    string
		profile sandbox.Profile
		word    string
		path    string
		batch   int // so many that what is sent to and fro takes no part of the time
	}{
		{"open and close of a file, in a held workspace", sandbox.ProfileAgent, "open", file, 1000},
		{"create, write, unlink of a file, in a held workspace", sandbox.ProfileAgent, "make", filepath.Join(s.Work, "new.txt"), 100},
		{"open and close of a file, in a read-only workspace", sandbox.ProfileCommand, "open", file, 1000},
	} {
		spec := s.spec(c.profile, bin)
		// A Go program does not start in the address space of a command.
		spec.Limits = sandbox.Limits{AddressSpace: sandbox.Unlimited, Wall: sandbox.Unlimited, CPU: sandbox.Unlimited}
		boxed, err := startBoxed(ctx, spec)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		mine, theirs, err := inTurn(ctx, b.times(200),
			func() error { return boxed.do(c.word, c.batch, c.path) },
			func() error { return free.do(c.word, c.batch, c.path) })
		if err = errors.Join(err, boxed.close()); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		mine, theirs = mine.divided(c.batch), theirs.divided(c.batch)
		r := latency(c.what, mine, "without a box", theirs)
		r.Figure = "added " + span(mine.p50()-theirs.p50())
		b.add(r)
	}
	return nil
}
