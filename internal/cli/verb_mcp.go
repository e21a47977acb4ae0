package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/config"
	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/unboxed"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// mcpFlags are the flags of "ringfence mcp".
type mcpFlags struct {
	servers, policy, workspace string
	persona, agent             string
	ask, tier                  string
	wait                       span
	listen                     listenFlags
	pageAbove                  int
}

// newMCP is "ringfence mcp".
func newMCP(s *streams) *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:   "mcp",
		Args:  cobra.NoArgs,
		Short: "Be an MCP server in front of other MCP servers",
		Long: "Be an MCP server on standard input and output, in front of the servers of FILE,\n" +
			"which has the mcpServers JSON that every MCP client uses. Every call passes the\n" +
			"gate. What needs a person waits at the desk (\"ringfence approvals\"), never on the\n" +
			"terminal of the client. After the last line of its input, what is in flight has " + mediator.DefaultDrain.String() + "\n" +
			"to be done, start of a server included; what is not done then is answered with an error.\n" +
			"With --listen, clients come over HTTP instead, any number of them, and show a token.",
		Annotations: exits(status{codeEvidence, ""}),
		Example: "  ringfence mcp --servers servers.json --workspace ~/src/project\n" +
			"  ringfence mcp --listen 127.0.0.1:8765",
		RunE: func(c *cobra.Command, _ []string) error {
			return runMCP(c.Context(), s, f)
		},
	}
	c.AddCommand(newMCPAdd(s), newMCPImport(s), newMCPTrust(s))
	c.Flags().StringVar(&f.servers, "servers", "", "`FILE` that lists the servers (default: those that \"mcp add\" has added)")
	c.Flags().StringVar(&f.policy, "policy", "", "compiled constitution, a `DIR`; without it the default one applies")
	c.Flags().StringVarP(&f.workspace, "workspace", "w", "", "`DIR` that the agent works in (default: the working directory)")
	c.Flags().StringVar(&f.tier, "tier", "", "how servers are confined: native, container, or none (default: as configured)")
	c.Flags().StringVar(&f.persona, "persona", "default", "persona of the agent")
	c.Flags().StringVar(&f.agent, "agent", "mcp", "name of the agent")
	c.Flags().StringVar(&f.ask, "ask", api.AskDesk, "desk, or never: deny what needs a person")
	c.Flags().Var(&f.wait, "ask-wait", "`TIME` that a person is waited for, such as 90s (default: as configured)")
	c.Flags().IntVar(&f.pageAbove, "page-above", 0, "`BYTES` of a result from which on the agent gets its beginning, and the rest in pages (default: never)")
	f.listen.add(c.Flags())
	return c
}

func runMCP(ctx context.Context, s *streams, f mcpFlags) error {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	on, err := f.listen.open()
	if err != nil {
		return err
	}
	o, err := openMediator(ctx, s, f, log)
	if err != nil {
		return errors.Join(err, on.close())
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		if err := <-o.probed; err != nil {
			stop(&exitError{code: codeNotBuilt, err: err, hint: `nothing was started; "ringfence doctor" says what this machine can enforce`})
		}
	}()
	// A client that closes its end is an error of writing, and not the end of this
	// process: what is under way is still recorded.
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	defer signal.Stop(closed)
	if on != nil {
		err = on.serve(running, s, o.mediator, log)
	} else {
		if isTerminal(s.in) {
			s.say("waiting for an MCP client on standard input: a client starts this command itself; ^D ends it")
		}
		done := oneAtATime(s)
		err = o.mediator.Run(running, s.in, s.out)
		done()
	}
	<-tried
	var unboxable *exitError
	if cause := context.Cause(running); errors.As(cause, &unboxable) {
		return errors.Join(unboxable, o.done())
	}
	if err = errors.Join(endOf(err), o.done()); err == nil && interrupted(ctx) {
		return &exitError{code: codeInterrupted}
	}
	return err
}

// filesOf are those of streams that are files.
func filesOf(streams ...any) []*os.File {
	var files []*os.File
	for _, s := range streams {
		if f, ok := s.(*os.File); ok {
			files = append(files, f)
		}
	}
	return files
}

// oneAtATime prepares this process for passing messages between streams: a message
// wakes one thread of it, the one that does all that there is to do. done makes s what it
// was.
func oneAtATime(s *streams) (done func()) {
	// More would be woken by each message, and find nothing to do.
	procs, in, out := runtime.GOMAXPROCS(1), s.in, s.out.w
	freeIn, freeOut := func() {}, func() {}
	if f, ok := in.(*os.File); ok {
		f, freeIn = ipc.Polled(f, filesOf(out, s.err.w)...)
		s.in = ipc.BriskReader(f)
	}
	if f, ok := out.(*os.File); ok {
		f, freeOut = ipc.Polled(f, filesOf(in, s.err.w)...)
		s.out.w = ipc.BriskWriter(f)
	}
	return func() {
		freeIn()
		freeOut()
		s.in, s.out.w = in, out
		runtime.GOMAXPROCS(procs)
	}
}

// endOf is nil for an end that the client, or a person, wanted.
func endOf(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// interrupted reports whether a person at the terminal ended ctx. Clients end
// servers of tools with the polite signal, and that is a good end.
func interrupted(ctx context.Context) bool {
	s, ok := errors.AsType[*signalled](context.Cause(ctx))
	return ok && s.signal == os.Interrupt
}

// An openedMediator serves one session.
type openedMediator struct {
	mediator *mediator.Mediator
	done     func() error // ends the session
	probed   <-chan error // why no box can be built, or nil
}

// openMediator opens a session for the servers of a file.
func openMediator(ctx context.Context, s *streams, f mcpFlags, log *slog.Logger) (*openedMediator, error) {
	if err := ownList(&f.servers); err != nil {
		return nil, err
	}
	servers, sum, err := readList(f.servers, log)
	if err != nil {
		return nil, err
	}
	boxes, err := newBoxes(s, f.workspace, f.tier)
	if err != nil {
		return nil, err
	}
	if boxes, err = f.among(boxes, servers); err != nil {
		return nil, err
	}
	if err := f.tighten(); err != nil {
		return nil, err
	}
	boxes.Known = map[string][]string{}
	open, err := openRequest(f, boxes, servers)
	if err != nil {
		return nil, err
	}
	open.Sums = []string{sum}
	known, err := serverServices(ctx, s, servers)
	if err != nil {
		return nil, err
	}
	open.Reads = known.reads()
	sweep(ctx, s, boxes.Tier)
	probed := probe(ctx, boxes.Tier, servers)
	var image imageOfEngine
	boxes.Tier = image.in(boxes.Tier)
	defer image.is(0) // nobody waits for the image of an engine that is not there
	client, err := connectAs(ctx, image.is)
	if err != nil {
		return nil, err
	}
	session, err := client.OpenSession(ctx, open)
	if err != nil {
		return nil, errors.Join(sessionError(placed(err, f.servers, servers)), client.Close())
	}
	done := func() error {
		// The session is ended also when we are being ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return errors.Join(session.Close(ctx), client.Close())
	}
	for _, note := range session.Opened().Notes {
		log.WarnContext(ctx, note)
	}
	m, err := mediate(boxes, servers, session, client, known, log, f.pageAbove)
	if err != nil {
		return nil, errors.Join(err, done())
	}
	stop := answerVerbs(m, session.Opened().Session, log)
	return &openedMediator{m, func() error { stop(); return done() }, probed}, nil
}

// mediate returns a mediator in front of servers, which run in boxes of a session.
func mediate(boxes mediator.Boxes, servers []mediator.Server, session *api.Session, client *api.Client, known services, log *slog.Logger, pageAbove int) (*mediator.Mediator, error) {
	boxes.Held, boxes.Blocked = session.Opened().Held, session.Opened().Blocked
	boxes.Record = func(ctx context.Context, server string, r sandbox.Report) error {
		return session.RecordBox(ctx, server, "", r.String(), r)
	}
	boxes.RecordCommand = func(ctx context.Context, ticket string, r sandbox.Report) error {
		return session.RecordBox(ctx, "", ticket, r.String(), r)
	}
	boxes.Launch = launching(session)
	boxes.Way = serverWay{
		tier:    boxes.Tier,
		known:   func(context.Context) (services, error) { return known, nil },
		session: func(context.Context) (*api.Client, *api.Session, error) { return client, session, nil },
	}.open
	return mediator.New(mediator.Options{
		Decider: session, Starter: reaching(boxes, session), Commander: boxes, Servers: servers, Log: log, Version: version,
		Session: session.Opened().Session, Principal: session.Opened().Principal, PageAbove: pageAbove,
	})
}

// probe tries out whether boxes can be built at all, if a server needs one: without
// them this verb does not start.
func probe(ctx context.Context, tier sandbox.Tier, servers []mediator.Server) <-chan error {
	probed := make(chan error, 1)
	if !slices.ContainsFunc(servers, func(s mediator.Server) bool { return !s.Ringfence.Unboxed && !s.Remote() }) {
		probed <- nil
		return probed
	}
	go func() {
		_, err := tier.Probe(ctx)
		probed <- err
	}()
	return probed
}

// tighten makes of the flags what the environment of this process, which the
// engine does not see, says about asking.
func (f *mcpFlags) tighten() error {
	home, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	conf, _, err := config.Load(home)
	if err != nil {
		return &exitError{code: codeUsage, err: err}
	}
	if conf.AskNever {
		f.ask = api.AskNever
	}
	return nil
}

// checkPaths refuses paths of a server that are not there.
func checkPaths(boxes mediator.Boxes, srv mediator.Server) error {
	for _, p := range boxes.Paths(srv) {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("looking for one of its paths: %w", err)
		}
	}
	return nil
}

// newBoxes is where servers run: in boxes of the one tier that is required.
func newBoxes(s *streams, workspace, tier string) (mediator.Boxes, error) {
	conf, _, err := settings()
	if err != nil {
		return mediator.Boxes{}, err
	}
	required, err := tierOf(s, conf.Box, tier)
	if err != nil {
		return mediator.Boxes{}, err
	}
	if workspace == "" {
		workspace = "."
	}
	workspace, err = filepath.Abs(workspace)
	if err == nil {
		workspace, err = filepath.EvalSymlinks(workspace)
	}
	if err != nil {
		return mediator.Boxes{}, &exitError{code: codeUsage, err: fmt.Errorf("finding the workspace: %w", err)}
	}
	home, err := paths.UserHome()
	if err != nil {
		return mediator.Boxes{}, err
	}
	self, err := proc.Executable()
	if err != nil {
		return mediator.Boxes{}, err
	}
	own, err := paths.EnsureHome()
	if err != nil {
		return mediator.Boxes{}, err
	}
	return mediator.Boxes{
		Tier: required, Unboxed: unboxed.Tier{}, Cache: paths.Caches(own), Workspace: workspace, Home: home, Program: self, Apart: required.Name() == container.Name,
		Path: paths.SearchPath(), Env: paths.ServerEnvironment(), OwnState: paths.OwnState(own),
	}, nil
}

// among is boxes for the servers of f: neither the file that lists them nor the policy
// is theirs to change.
func (f mcpFlags) among(boxes mediator.Boxes, servers []mediator.Server) (mediator.Boxes, error) {
	file, err := filepath.Abs(f.servers)
	if err == nil && f.policy != "" {
		var dir string
		if dir, err = filepath.Abs(f.policy); err == nil {
			if real, linked := filepath.EvalSymlinks(dir); linked == nil {
				dir = real
			}
			boxes.OwnState = append(boxes.OwnState, dir)
		}
	}
	if err != nil {
		return boxes, fmt.Errorf("finding the servers and their policy: %w", err)
	}
	return boxes.Among(file, servers), nil
}

func openRequest(f mcpFlags, boxes mediator.Boxes, servers []mediator.Server) (api.OpenRequest, error) {
	r := api.OpenRequest{
		Principal: f.persona + "/" + f.agent, Verb: "mcp", Workspace: boxes.Workspace, Ask: f.ask,
		AskSeconds: f.wait.seconds(),
	}
	file, err := filepath.Abs(f.servers)
	if err != nil {
		return r, fmt.Errorf("finding the list of servers: %w", err)
	}
	r.Lists = []string{file}
	if f.policy != "" {
		if r.PolicyDir, err = filepath.Abs(f.policy); err != nil {
			return r, fmt.Errorf("finding the policy: %w", err)
		}
	}
	for _, s := range servers {
		if err := checkPaths(boxes, s); err != nil {
			return r, &exitError{code: codeUsage, err: fmt.Errorf("%s:%s: server %s: %w", f.servers, s.Place("paths"), s.Name, err)}
		}
		argv, err := boxes.Argv(s)
		if err != nil {
			return r, fmt.Errorf("%s:%s: %w", f.servers, s.Place("command"), err)
		}
		shown := boxes.Shown(s, argv)
		program, err := boxes.Identity(s)
		if err != nil {
			return r, err
		}
		boxes.Known[s.Name] = program
		annotations := s.Ringfence.Annotations
		if annotations == "" {
			annotations = s.Ringfence.Builtin
		}
		var changes []string
		writes := s.Ringfence.Builtin == "exec" && s.Ringfence.Workspace == sandbox.ReadWrite
		if writes {
			changes = boxes.Paths(s)
		}
		r.Servers = append(r.Servers, api.ServerInfo{
			Boxes: writes, Changes: changes, Name: s.Name, Report: json.RawMessage(api.BoxFollows), Argv: shown, Launch: launchOf(argv), Dir: boxes.Dir(s), Annotations: annotations, Program: program, Hosts: s.Ringfence.Hosts,
		})
	}
	return r, nil
}

// launchOf identifies what is started, variables of the environment expanded,
// without telling it.
func launchOf(argv []string) string {
	h := sha256.New()
	for _, a := range argv {
		h.Write(fmt.Appendf(nil, "%d:%s,", len(a), a))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// placed is err with the place in file of the annotations that it is about, if it is
// about the annotations of a server.
func placed(err error, file string, servers []mediator.Server) error {
	e, ok := errors.AsType[*api.Error](err)
	for _, s := range servers {
		if ok && strings.HasPrefix(e.Message, "server "+s.Name+" names annotations ") {
			return fmt.Errorf("%s:%s: %w", file, s.Place("annotations"), err)
		}
	}
	return err
}

// sessionError gives an error of opening a session its exit status.
func sessionError(err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.CodeBadRequest {
		return &exitError{code: codeUsage, err: err}
	}
	return answerError(err)
}
