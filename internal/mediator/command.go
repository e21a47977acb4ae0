package mediator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sandbox"
)

// builtinExec is the built-in server whose commands this process runs.
const builtinExec = "exec"

var _ Commander = Boxes{}

// A command is what a call of run_command asks for, its paths resolved.
type command struct {
	Line      string  `json:"command"`
	Dir       string  `json:"cwd"`
	Workspace string  `json:"workspace"` // what the box shows, with all beneath
	Timeout   float64 `json:"timeout_seconds"`
	Stdin     string  `json:"stdin"`
}

// A commandResult is what an agent gets to read. Output is data: what a terminal would
// take for orders is escaped by JSON.
type commandResult struct {
	Status  int              `json:"exit_status"` // as on a command line
	Ended   string           `json:"ended"`       // "status 1", "signal 9", "deadline", "killed"
	Stdout  string           `json:"stdout"`
	Stderr  string           `json:"stderr"`
	LeftOut int64            `json:"left_out,omitempty"` // bytes of both that are not there
	Note    string           `json:"note,omitempty"`
	Denials []sandbox.Denial `json:"denials,omitempty"`
}

// Run implements [Commander].
//
// The ticket decided what runs, and that the workspace is read. Where commands may
// change the workspace, that is decided for each of them besides, by b.Launch.
func (b Boxes) Run(ctx context.Context, s Server, t act.Ticket, args []byte) ([]byte, error) {
	var c command
	if err := strictjson.Unmarshal(args, &c); err != nil {
		return nil, fmt.Errorf("reading arguments: %w", err)
	}
	tier, err := b.tier(s)
	if err != nil {
		return nil, err
	}
	spec, err := b.commandSpec(s, t, c)
	if err != nil {
		return nil, err
	}
	if s.Ringfence.Workspace == sandbox.ReadWrite {
		tier = furnished{tier, spec.ReadOnly}
		spec.ReadOnly = nil
		return runCommand(ctx, spec, c.Stdin, func() (sandbox.Box, func() error, error) { return b.Launch(ctx, t.ID, tier, spec) })
	}
	spec.Confirm = func(r sandbox.Report) error { return b.RecordCommand(ctx, t.ID, r) }
	return runCommand(ctx, spec, c.Stdin, func() (sandbox.Box, func() error, error) {
		box, err := tier.Start(ctx, spec)
		return box, func() error { return nil }, err
	})
}

// furnished is a tier whose boxes also show what programs need that were decided on
// already: where they are installed.
type furnished struct {
	sandbox.Tier
	readOnly []string
}

func (f furnished) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	s.ReadOnly = slices.Concat(s.ReadOnly, f.readOnly)
	return f.Tier.Start(ctx, s)
}

// commandSpec is the box of one command.
func (b Boxes) commandSpec(s Server, t act.Ticket, c command) (sandbox.Spec, error) {
	if !filepath.IsAbs(c.Workspace) || !filepath.IsAbs(c.Dir) {
		return sandbox.Spec{}, errors.New("the directories of this command were not resolved")
	}
	argv, err := argvOf(c.Line, shellPrograms)
	if err != nil {
		return sandbox.Spec{}, err
	}
	path := b.commandPath()
	programs, err := programsOf(t.Effects, path)
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec := sandbox.Spec{
		Argv: argv, Env: b.commandEnvironment(s, path), Dir: c.Dir, Profile: s.Ringfence.Profile,
		Workspace: sandbox.Workspace{Path: c.Workspace, Mode: sandbox.ReadOnly},
		Decided:   []string{c.Workspace}, Denied: t.Filter.LeaveOut, Limits: sandbox.Limits{Output: sandbox.Unlimited}, // see kept
	}
	if s.Ringfence.Workspace == sandbox.ReadWrite {
		spec.Workspace.Mode = sandbox.ReadWrite
		spec.ReadWrite = b.distinct(b.Paths(s))
	} else {
		spec.ReadOnly = b.Paths(s)
	}
	if spec.Profile == "" {
		spec.Profile = sandbox.ProfileCommand
		if spec.Workspace.Mode == sandbox.ReadWrite {
			spec.Profile = sandbox.ProfileAgent
		}
	}
	for _, p := range programs {
		spec.ReadOnly = append(spec.ReadOnly, b.codeOf([]string{p})...)
	}
	spec.ReadOnly = b.distinct(spec.ReadOnly)
	spec.Limits.Wall, spec.Limits.CPU = commandTime(s, spec, c.Timeout)
	return spec, b.confine(&spec, s)
}

// commandTime returns the limits of time: what the entry says, else the profile, else
// what a call may take. An agent can ask for less.
func commandTime(s Server, spec sandbox.Spec, asked float64) (wall, cpu time.Duration) {
	bounds := spec.Bounds()
	wall, cpu = bounds.Wall, bounds.CPU
	if set := s.Ringfence.Timeout; set > 0 {
		wall = set
		if cpu != sandbox.Unlimited {
			cpu = max(cpu, set)
		}
	}
	if wall == sandbox.Unlimited {
		wall = Options{}.withDefaults().CallTimeout
	}
	if asked > 0 && asked < wall.Seconds() {
		wall = max(time.Duration(asked*float64(time.Second)), time.Millisecond)
	}
	return wall, cpu
}

// shellPrograms is where bash is looked for: places that belong to the system.
var shellPrograms = []string{"/usr/bin/bash", "/bin/bash", "/run/current-system/sw/bin/bash"}

// plainLine is a line that every shell reads in one way, and that needs none: words
// of ordinary characters, the first a path.
var plainLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/[A-Za-z0-9_./:=,@%+-]+( +[A-Za-z0-9_./:=,@%+-]+)*$`)
})

// argvOf returns what runs a line. Lines were judged in the grammar of bash, so bash
// runs them and no other shell: dash takes "&>" and "|&" for something else. Nothing
// that it reads at its start can change what the line means.
func argvOf(line string, shells []string) ([]string, error) {
	if plainLine().MatchString(line) {
		return strings.Fields(line), nil
	}
	for _, sh := range shells {
		if executable(sh) == nil {
			return []string{sh, "--norc", "--noprofile", "-c", line}, nil
		}
	}
	return nil, errors.New("this line needs bash, which is not installed: write one program and plain words, or put the line in a script and run that")
}

// shellVariables change how bash reads a line.
var shellVariables = []string{"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "POSIXLY_CORRECT", "BASH_COMPAT", "CDPATH", "GLOBIGNORE", "IFS"}

// commandEnvironment is what commands get: what servers do, and PATH and HOME as they
// were when the line was judged. Temporary files are the box's own.
func (b Boxes) commandEnvironment(s Server, path []string) []string {
	env := slices.DeleteFunc(b.environment(s), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(shellVariables, name) || strings.HasPrefix(name, "BASH_FUNC_") || slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name)
	})
	return append(env, "PATH="+strings.Join(path, ":"), "HOME="+b.Home)
}

// commandPath is b.Path as programs are looked up for commands: nothing that an agent
// can write to.
func (b Boxes) commandPath() []string {
	var dirs []string
	for _, d := range b.Path {
		if real, err := filepath.EvalSymlinks(d); err == nil && !b.ofWorkspace(real) && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}

// factProgram is the fact of an execution whose program was found by its bare name.
const factProgram = "program"

// programsOf returns the programs that were decided on. What bash or a wrapper finds
// along path must be the same program: else nothing is run.
func programsOf(effects []act.Effect, path []string) ([]string, error) {
	var all []string
	for _, e := range effects {
		if e.Kind != act.Execute {
			continue
		}
		var argv []string
		if err := json.Unmarshal([]byte(e.Resource.Text), &argv); err != nil || len(argv) == 0 {
			return nil, errors.New("what was decided names no program")
		}
		all = append(all, argv[0])
		name, found := e.Resource.Facts[factProgram].(string)
		if !found {
			continue
		}
		at := slices.IndexFunc(path, func(dir string) bool { return executable(filepath.Join(dir, name)) == nil })
		if at < 0 || filepath.Join(path[at], name) != argv[0] {
			return nil, fmt.Errorf("%s was decided on as %s, and here the name means another program: the engine was started with another PATH; end it with \"ringfence engine stop\"", name, argv[0])
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// keptOutput is how many bytes are kept of each stream: half from its beginning, half
// from its end. It is a bound of what an agent reads, far below that of any profile.
const keptOutput = 64 << 10

// A kept is the beginning and the end of a stream.
type kept struct {
	head []byte
	tail ring
	n    int64
}

func (k *kept) Write(p []byte) (int, error) {
	k.n += int64(len(p))
	room := min(keptOutput/2-len(k.head), len(p))
	k.head = append(k.head, p[:room]...)
	_, _ = k.tail.Write(p[room:])
	return len(p), nil
}

// text returns what was kept, and how many bytes are missing from it.
func (k *kept) text() (string, int64) {
	tail := k.tail.String()
	left := k.n - int64(len(k.head)+len(tail))
	if left == 0 {
		return string(k.head) + tail, 0
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", k.head, left, tail), left
}

// A denied is the error of a launch that the gate did not allow.
type denied interface {
	error
	Denied() act.Ticket
}

// runCommand starts a box, reads it to its end and says what came of it. When it
// returns nothing of the box runs.
func runCommand(ctx context.Context, spec sandbox.Spec, stdin string, start func() (sandbox.Box, func() error, error)) ([]byte, error) {
	box, finish, err := start()
	var no denied
	switch {
	case errors.As(err, &no):
		return nil, no // it says all that a denied call says
	case errors.Is(err, sandbox.ErrNotFound):
		return nil, fmt.Errorf("nothing was run: %w", err)
	case err != nil:
		return nil, fmt.Errorf("nothing was run, as there is no box for it: %w", err)
	}
	stdout, stderr := kept{tail: ring{max: keptOutput / 2}}, kept{tail: ring{max: keptOutput / 2}}
	var streams sync.WaitGroup
	streams.Go(func() {
		// A program need not read its input.
		_, _ = io.WriteString(box.Stdin(), stdin)
		_ = box.Stdin().Close()
	})
	var oErr, eErr error
	streams.Go(func() { _, oErr = io.Copy(&stdout, box.Stdout()) })
	streams.Go(func() { _, eErr = io.Copy(&stderr, box.Stderr()) })
	exit, err := box.Wait()
	streams.Wait()
	if err = errors.Join(err, oErr, eErr, finish()); err != nil {
		return nil, fmt.Errorf("running the command: %w", err)
	}
	r := commandResult{Status: exit.Status(), Ended: exit.String(), Note: endNote(ctx, boxed{Spec: spec}, exit)}
	var left [2]int64
	r.Stdout, left[0] = stdout.text()
	r.Stderr, left[1] = stderr.text()
	r.LeftOut = left[0] + left[1]
	r.Denials = append(boxed{Spec: spec}.told(box.Denials()), inferDenials(boxed{Spec: spec}, r.Stderr)...)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
