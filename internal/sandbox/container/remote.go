package container

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/sandbox"
)

// startRemote completes a box on an engine whose kernel is not ours. Nothing can be
// read back from there, so the engine's own word is confirmed before the start, and
// the layers are inferred.
func startRemote(ctx, setUp context.Context, b *box, s sandbox.Spec, p *plan, body createBody, image string) (err error) {
	e, without := b.engine, body
	body.runProgram(e, s, p)
	if b.id, err = e.create(setUp, body); err != nil {
		return err
	}
	a := &attachment{engine: e, id: b.id}
	b.life = a
	defer func() {
		if err != nil {
			err = errors.Join(err, e.removeAnyway(ctx, b.id))
			if a.conn.UnixConn != nil {
				shut(a.conn)
			}
		}
	}()
	if b.report, err = e.hearsay(setUp, b.id, body); err != nil {
		return err
	}
	b.report.Image = image
	if p.copy != "" {
		b.report.Inferred = append(b.report.Inferred, sandbox.LayerWorkspace+"=copy")
		b.report.Evidence[sandbox.LayerWorkspace] = p.copyEvidence()
	}
	if p.homeFrom != "" {
		b.report.Inferred = append(b.report.Inferred, sandbox.LayerHome+"=own")
		b.report.Evidence[sandbox.LayerHome] = p.homeEvidence()
	}
	program, err := e.programIn(setUp, b.id, append([]string{s.Argv[0]}, p.search...))
	if err != nil {
		return err
	}
	if program != s.Argv[0] {
		if p.search == nil {
			return fmt.Errorf("starting %s: the engine does not say twice where it is", s.Argv[0])
		}
		return startRemoteAs(ctx, setUp, b, s, p, without, image, program)
	}
	if s.Confirm != nil {
		if err := s.Confirm(b.report); err != nil {
			return err
		}
	}
	starting, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("the engine took longer than %v", callTime))
	defer cancel()
	if a.conn, err = e.attach(starting, b.id); err != nil {
		return err
	}
	if err := e.startProgram(starting, b.id); err != nil {
		return err
	}
	a.connect(b, s)
	return nil
}

// startRemoteAs makes the container anew, with the program of the image that stands for
// that of the Spec: an engine does not change what a container runs.
func startRemoteAs(ctx, setUp context.Context, b *box, s sandbox.Spec, p *plan, body createBody, image, program string) error {
	if err := b.engine.removeAnyway(ctx, b.id); err != nil {
		return err
	}
	confirm, named := s.Confirm, s.Argv[0]
	s.Argv = append([]string{program}, s.Argv[1:]...)
	p.search = nil
	s.Confirm = func(r sandbox.Report) error {
		r.Evidence[sandbox.LayerContainer] += runs(program, named)
		if confirm == nil {
			return nil
		}
		return confirm(r)
	}
	return startRemote(ctx, setUp, b, s, p, body, image)
}

// programIn returns the first of files that is in a container.
func (e *engine) programIn(ctx context.Context, id string, files []string) (string, error) {
	for _, file := range files {
		if there, err := e.hasFile(ctx, id, file); err != nil || there {
			return file, err
		}
	}
	return "", fmt.Errorf("%w: %s is not in the image", sandbox.ErrNotFound, files[0])
}

// errMayHaveRun is an error of Start after which nobody can say that the program did
// not run. It is not wrapped in ErrNotBuilt.
var errMayHaveRun = errors.New("the program may have run")

// startProgram starts a container whose first process is the program. If the answer
// is lost, it asks what became of it.
func (e *engine) startProgram(ctx context.Context, id string) error {
	err := e.startContainer(ctx, id)
	var refused *apiError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	a, askErr := e.inspect(ctx, id)
	switch {
	case askErr != nil:
		return fmt.Errorf("%w: %w, %w", errMayHaveRun, err, askErr)
	case a.State.StartedAt.IsZero():
		return err
	}
	return nil
}

// hearsay compares what the engine says that it will do with what it was asked for.
func (e *engine) hearsay(ctx context.Context, id string, body createBody) (sandbox.Report, error) {
	a, err := e.inspect(ctx, id)
	if err != nil {
		return sandbox.Report{}, err
	}
	r := sandbox.Report{Tier: Name, Evidence: map[string]string{sandbox.LayerContainer: e.evidence()}}
	got, want := a.HostConfig, body.HostConfig
	pids := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	var wrong []string
	for _, c := range []struct {
		layer string
		same  bool
		said  string
	}{
		{sandbox.LayerContainer, !got.Privileged && a.Config.User == body.User, "not privileged"},
		{sandbox.LayerNetworkNamespace, got.NetworkMode == "none", "NetworkMode: none"},
		{sandbox.LayerIPCNamespace, got.IpcMode != "host", "IpcMode: " + got.IpcMode},
		{LayerReadOnlyRoot, got.ReadonlyRootfs, "ReadonlyRootfs: true"},
		{sandbox.LayerNoNewPrivileges, slices.Contains(got.SecurityOpt, "no-new-privileges"), "SecurityOpt: no-new-privileges"},
		{sandbox.LayerSeccomp, !slices.ContainsFunc(got.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "seccomp") }), "the engine's default profile"},
		// Podman lists what it drops.
		{sandbox.LayerNoCapabilities, slices.Contains(got.CapDrop, "ALL") || e.kind == RuntimePodman && len(got.CapDrop) > 0, "CapDrop: " + strings.Join(got.CapDrop, ",")},
		{sandbox.LayerUnprivileged, a.Config.User == body.User, "User: " + a.Config.User},
		{sandbox.LayerCgroup, got.Memory == want.Memory && pids(got.PidsLimit) == pids(want.PidsLimit), fmt.Sprintf("Memory: %d, PidsLimit: %d", got.Memory, pids(got.PidsLimit))},
	} {
		if !c.same {
			wrong = append(wrong, c.layer)
			continue
		}
		if c.layer != sandbox.LayerContainer {
			r.Evidence[c.layer] = c.said
		}
		r.Inferred = append(r.Inferred, c.layer)
	}
	if e.kind == RuntimeDocker && len(body.HostConfig.Mounts) > 0 {
		r.Missing = append(r.Missing, LayerMountOptions)
		r.Evidence[LayerMountOptions] = "Docker cannot be asked for mounts that are nosuid and nodev; no-new-privileges and the devices of the container keep what is there from working"
	}
	r.Inferred = append(r.Inferred, sandbox.LayerRlimits)
	r.Evidence[sandbox.LayerRlimits] = "descriptors, processor time and core dumps; for the address space of each process stands the memory of all"
	if len(wrong) > 0 {
		return sandbox.Report{}, fmt.Errorf("%s made a container that is not as it was asked for: %s", e, strings.Join(wrong, ", "))
	}
	return r, nil
}

// An attachment is a container's streams, as the engine passes them on.
type attachment struct {
	engine *engine
	id     string
	conn   conn
	given  bool          // an output of the caller's own
	pumped chan struct{} // closed when everything that the program wrote is written

	cutting sync.Once
	wasCut  atomic.Bool
}

var _ lifeline = (*attachment)(nil)

// connect gives b its streams. What the program writes is taken from the engine
// as it is read here, never kept.
func (a *attachment) connect(b *box, s sandbox.Spec) {
	var out, errs io.WriteCloser
	b.stdin, b.stdout, b.stderr = closedStream{}, noOutput(), noOutput()
	if s.Stdin != nil {
		// Not waited for: it may be in a read that only its owner can end.
		go func() {
			_, _ = io.Copy(a.conn, s.Stdin) // the program may not want it
			_ = a.conn.CloseWrite()
		}()
	} else {
		b.stdin = input{a.conn}
	}
	b.stdout, out = output(s.Stdout, b.stdout)
	b.stderr, errs = output(s.Stderr, b.stderr)
	a.given, a.pumped = s.Stdout != nil || s.Stderr != nil, make(chan struct{})
	go func() {
		defer close(a.pumped)
		defer shut(a.conn)
		err := demultiplex(a.conn, out, errs)
		closeWith(out, err)
		closeWith(errs, err)
	}()
}

// output returns where the program's output is read and written.
func output(given *os.File, none io.Reader) (io.Reader, io.WriteCloser) {
	if given != nil {
		return none, keepOpen{given}
	}
	return io.Pipe()
}

func closeWith(w io.WriteCloser, err error) {
	if p, ok := w.(*io.PipeWriter); ok {
		p.CloseWithError(err) // nil is io.EOF
	}
}

// keepOpen is a file that its owner closes.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// input is the program's standard input. Closing it ends the stream, not the
// connection.
type input struct{ c conn }

func (i input) Write(p []byte) (int, error) { return i.c.Write(p) }
func (i input) Close() error                { return i.c.CloseWrite() }

// Streams of an attached container: the first byte of each frame's head, whose last
// four are its length, big-endian
// (https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach).
const (
	streamOut  = 1
	streamErr  = 2
	streamHead = 8
)

var errStream = errors.New("the engine sends a stream that is none of the program's")

// demultiplex copies frames to where they belong, without keeping any, until r
// ends between two frames.
func demultiplex(r io.Reader, out, errs io.Writer) error {
	var head [streamHead]byte
	buf := make([]byte, 64<<10)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading what the program wrote: %w", err)
		}
		var w io.Writer
		switch head[0] {
		case streamOut:
			w = out
		case streamErr:
			w = errs
		default:
			return errStream
		}
		if head[1] != 0 || head[2] != 0 || head[3] != 0 {
			return errStream
		}
		n := int64(binary.BigEndian.Uint32(head[4:]))
		copied, err := io.CopyBuffer(w, io.LimitReader(r, n), buf)
		if err == nil && copied < n {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("reading what the program wrote: %w", err)
		}
	}
}

// await implements [lifeline].
func (a *attachment) await() (sandbox.Exit, error) {
	status, err := a.engine.wait(context.Background(), a.id)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if status == 128+sigKill && a.wasCut.Load() {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: sigKill}, nil
	}
	// The engine tells only a number; its init makes 128+n of signal n.
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: status}, nil
}

// denials implements [lifeline].
func (a *attachment) denials() []sandbox.Denial {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if c, err := a.engine.inspect(ctx, a.id); err == nil && c.State.OOMKilled {
		return []sandbox.Denial{memoryDenial(1)}
	}
	return nil
}

// signal implements [lifeline].
func (a *attachment) signal(number int) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return a.engine.signal(ctx, a.id, number)
}

// cut implements [lifeline].
func (a *attachment) cut() {
	a.cutting.Do(func() {
		a.wasCut.Store(true)
		_ = a.signal(sigKill) // the removal that follows kills as well, and reports
	})
}

const sigKill = 9

// drainTime is how long what the program wrote may take to be written to a file of
// the caller, when the program is gone.
const drainTime = 10 * time.Second

// gone implements [lifeline]. The removal has waited for the container.
func (a *attachment) gone() error {
	if !a.given {
		return nil // whoever reads the streams sees their end
	}
	select {
	case <-a.pumped:
		return nil
	case <-time.After(drainTime):
		return errors.New("what the program wrote last was not written")
	}
}
