package mediator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/ipc"
)

// Boxes is the [Starter] that starts servers in boxes of one tier.
type Boxes struct {
	Tier      sandbox.Tier
	Unboxed   sandbox.Tier // for servers that a person configured as unboxed; nil: they are refused
	Workspace string       // absolute real path; the working directory of servers that name none
	Home      string       // of the person, for "~/" in a path
	Program   string       // our own program, absolute: it runs the built-in servers
	Apart     bool         // boxes are of an image, in which our own program is not
	Path      []string     // where a command without a slash is looked for, in order
	Env       []string     // what every server gets, "KEY=value"; nothing else is inherited
	Cache     string       // absolute; each server keeps its caches in a directory of its name there
	// OwnState is what no server gets to see: our home, the policy. Real paths.
	OwnState []string
	// Held are more files that no server may change: the lists of other servers.
	Held   []string
	shared []string // trees that servers can change; see Among
	held   []string // files that none may change, wherever they are; see Among
	// Known is what the programs of servers were known by when a person's word on them was
	// looked up, see [Boxes.Identity]: a server that is not in it is not looked at again.
	Known map[string][]string
	// Blocked says why a server is not started, by name.
	Blocked map[string]string
	// Way opens the way out of the box of a server that has hosts: the box by way of it, and
	// what closes it once the box has ended. Nil: the network of such boxes is not held.
	Way func(ctx context.Context, s Server, spec sandbox.Spec) (by sandbox.Spec, closed func() error, err error)
	// Record puts on record what confines a server, before it starts.
	Record func(ctx context.Context, server string, r sandbox.Report) error
	// RecordCommand puts on record what confines a command, before it starts.
	RecordCommand func(ctx context.Context, ticket string, r sandbox.Report) error
	// Launch has a command decided that may change what it is given, and starts it.
	// finish is called once, at its end.
	Launch func(ctx context.Context, call string, tier sandbox.Tier, s sandbox.Spec) (box sandbox.Box, finish func() error, err error)
}

var _ Starter = Boxes{}

// Start starts s. The box outlives ctx; it ends with Process.Kill.
func (b Boxes) Start(ctx context.Context, s Server) (*Process, error) {
	if why := b.Blocked[s.Name]; why != "" {
		return nil, &BlockedError{why}
	}
	if err := b.unchanged(s); err != nil {
		return nil, err
	}
	if s.Remote() {
		return nil, fmt.Errorf("starting server %s: it is reached over HTTP, not run", s.Name)
	}
	spec, err := b.spec(s)
	if err != nil {
		return nil, fmt.Errorf("starting server %s: %w", s.Name, err)
	}
	spec.Confirm = func(r sandbox.Report) error { return b.Record(ctx, s.Name, r) }
	tier, err := b.tier(s)
	if err != nil {
		return nil, fmt.Errorf("starting server %s: %w", s.Name, err)
	}
	spec, closed, err := b.wayOut(ctx, s, spec, tier)
	if err != nil {
		return nil, fmt.Errorf("starting server %s: %w", s.Name, err)
	}
	var ch *channel
	if s.Ringfence.Builtin == builtinExec {
		var theirs []*os.File
		if ch, theirs, err = newChannel(); err != nil {
			return nil, errors.Join(fmt.Errorf("starting server %s: %w", s.Name, err), closed())
		}
		spec.Files = theirs
	}
	box, err := tier.Start(context.WithoutCancel(ctx), spec)
	for _, f := range spec.Files {
		f.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting server %s: %w", s.Name, err), ch.Close(), closed())
	}
	p := process(box)
	ended := p.Wait
	p.Wait = func() error { return errors.Join(ended(), closed()) }
	p.Sessions = s.Ringfence.Builtin != "" // ours need not be asked, and say less in each answer
	if ch != nil {
		p.Channel = ch
	}
	return p, nil
}

// tier is what confines s.
func (b Boxes) tier(s Server) (sandbox.Tier, error) {
	tier := b.Tier
	if s.Ringfence.Unboxed {
		tier = b.Unboxed
	}
	if tier == nil {
		return nil, errors.New("it is configured as unboxed, and here every server is in a box")
	}
	return tier, nil
}

// A channel is our end of two pipes, one in each direction. Of the server they are the
// descriptors 3, where it hears, and 4, where it asks.
type channel struct{ in, out *os.File }

func newChannel() (ours *channel, theirs []*os.File, err error) {
	hears, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	in, asks, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, hears.Close(), out.Close())
	}
	return &channel{in, out}, []*os.File{hears, asks}, nil
}

func (c *channel) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *channel) Write(p []byte) (int, error) { return c.out.Write(p) }

// Close implements [io.Closer]. Of nil it does nothing.
func (c *channel) Close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.in.Close(), c.out.Close())
}

func process(box sandbox.Box) *Process {
	kill := func() { _ = box.Kill() } // what cannot be killed shows in Wait
	return &Process{
		Stdin: brisk{ipc.BriskWriter(box.Stdin()), box.Stdin()}, Stdout: closing(ipc.BriskReader(box.Stdout()), box.Stdout()), Stderr: closing(box.Stderr(), box.Stderr()),
		Terminate: func() { _ = box.Terminate() }, Kill: kill, Report: box.Report().String(),
		Wait: func() error {
			exit, err := box.Wait()
			if err == nil && (exit.Cause != sandbox.CauseExit || exit.Code != 0) {
				err = errors.New(exit.String())
			}
			return err
		},
	}
}

// A brisk is a stream that something else writes to.
type brisk struct {
	io.Writer
	io.Closer
}

// A closer is a stream that something else reads.
type closer struct {
	io.Reader
	io.Closer
}

// closing is r, which reads from stream, and closes it if it can be closed: a box that has
// ended keeps our ends of its streams.
func closing(r, stream io.Reader) closer {
	if c, ok := stream.(io.Closer); ok {
		return closer{r, c}
	}
	return closer{r, io.NopCloser(stream)}
}

// Argv returns what is run as s, its program as an absolute path. Of a server that
// is reached over HTTP it is the URL.
func (b Boxes) Argv(s Server) ([]string, error) {
	argv, err := b.argv(s)
	if err != nil {
		return nil, fmt.Errorf("starting server %s: %w", s.Name, err)
	}
	return argv, nil
}

func (b Boxes) argv(s Server) ([]string, error) {
	if s.Remote() {
		return []string{s.URL}, nil
	}
	if s.Ringfence.Builtin == builtinExec {
		return []string{b.Program, "server", builtinExec}, nil
	}
	if s.Ringfence.Builtin != "" {
		argv := []string{b.Program, "server", s.Ringfence.Builtin, "--root", b.Workspace}
		for _, p := range s.Ringfence.Paths {
			argv = append(argv, "--root", b.absolute(p))
		}
		return argv, nil
	}
	program, err := b.find(s)
	if err != nil {
		return nil, err
	}
	return append([]string{program}, s.Args...), nil
}

// Shown returns argv, which is Argv(s), as it may be told and recorded: what comes
// from variables of the environment, where people keep secrets, as it is written.
func (b Boxes) Shown(s Server, argv []string) []string {
	if s.Remote() {
		return []string{s.ShownURL()}
	}
	shown := slices.Clone(argv)
	if s.Ringfence.Builtin != "" {
		return shown
	}
	if strings.Contains(s.Written.Command, "${") {
		shown[0] = s.Written.Command
	}
	if s.Written.Args != nil {
		copy(shown[1:], s.Written.Args)
	}
	return shown
}

// Paths returns what s may reach beside the workspace, as absolute paths.
func (b Boxes) Paths(s Server) []string {
	var all []string
	for _, p := range s.Ringfence.Paths {
		all = append(all, b.absolute(p))
	}
	return all
}

// Dir returns the working directory of s.
func (b Boxes) Dir(s Server) string {
	if s.Cwd == "" {
		return b.Workspace
	}
	return b.absolute(s.Cwd)
}

func (b Boxes) find(s Server) (string, error) {
	if strings.Contains(s.Command, "/") {
		program := s.Command
		if !filepath.IsAbs(program) {
			program = filepath.Join(b.Dir(s), program)
		}
		err := executable(program)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no program %s", program)
			if program != s.Command {
				err = fmt.Errorf("%w: %q is looked for in %s, which -w or the cwd of its entry names", err, s.Command, b.Dir(s))
			}
		}
		return program, err
	}
	for _, dir := range b.Path {
		program := filepath.Join(dir, s.Command)
		if executable(program) == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("there is no program %q in %s", s.Command, strings.Join(b.Path, ":"))
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "run", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

func (b Boxes) absolute(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(b.Home, rest)
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(b.Workspace, p)
}

// environment is what all servers get and what the entry of s sets, which wins. A box has a
// directory of its own for temporary files, and cannot write to that of the machine.
func (b Boxes) environment(s Server) []string {
	env := slices.DeleteFunc(slices.Clone(b.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, set := s.Env[name]
		return set || name == "TMPDIR" && !s.Ringfence.Unboxed
	})
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
