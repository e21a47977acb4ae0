package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"ringfence/internal/act/display"
	"ringfence/internal/act/loan"
	"ringfence/internal/agent/external"
	"ringfence/internal/agent/home"
	"ringfence/internal/agent/hooks"
	"ringfence/internal/agent/image"
	"ringfence/internal/daemon/api"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/listen"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/inode"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// A guest is an agent that is known, on its way into a box: its program, its private home,
// and the tools that it has there. A nil guest is any other command, and does nothing.
type guest struct {
	adapter   external.Adapter
	typed     []string // arguments of the person
	servers   string
	toolsOnly bool
	last      bool
	explained bool // it is not started

	home    home.Home
	person  string // his home
	token   string
	program external.Program
	inImage bool // its program is that of the image, found there by its name
	list    []mediator.Server
	boxes   mediator.Boxes
	hooked  bool   // its hooks ask us
	self    string // our program, which its hooks run
	comes   chan net.Listener
	stop    func() // has the servers end, and waits for nothing
	end     func() error
}

// named reports whether a flag was given that is for agents only.
func (g *guest) named() bool { return g.servers != "" || g.toolsOnly || g.last }

// quiet are hosts that the agent asks for reports and updates.
func (g *guest) quiet() []string {
	if g == nil {
		return nil
	}
	return g.adapter.Quiet
}

// hookProgram is where our program is in a box whose hooks run it.
const hookProgram = "/run/ringfence/ringfence"

// asked reports whether the agent's hooks are to ask us about each use of its own tools: where
// a policy was named. The default one asks a person about every command, and he has said yes to
// the box with all that runs in it.
func (g *guest) asked(policy string) bool {
	return policy != "" && !g.toolsOnly && !g.adapter.Plain(g.typed) && slices.Contains(hooks.Agents(), g.adapter.Name)
}

// moveIn is s for the agent: its program, what that needs to be seen, its environment and
// home. The arguments come when what they name is known.
func (g *guest) moveIn(s sandbox.Spec, env named) (sandbox.Spec, error) {
	if g == nil {
		return s, nil
	}
	if s.Network != sandbox.NetworkPolicy {
		return s, &exitError{code: codeUsage, err: fmt.Errorf("%s reaches its model by the network, and --net none leaves it without one", g.adapter.Title), hint: "leave --net out: hosts that the policy does not allow are not reached"}
	}
	var err error
	if g.person, err = paths.UserHome(); err != nil {
		return s, err
	}
	if g.inImage {
		g.program = external.Program{Path: shellOfImages, Search: []string{image.Programs}}
	} else if g.program, err = g.adapter.Find(lookAround(g.person)); err != nil {
		return s, &exitError{code: codeNotFound, err: err}
	}
	workspace, err := filepath.EvalSymlinks(s.Workspace.Path)
	if err != nil {
		return s, &exitError{code: codeUsage, err: fmt.Errorf("finding the workspace: %w", err)}
	}
	if !g.explained {
		if err := g.openHome(workspace); err != nil {
			return s, err
		}
	}
	g.token, g.comes = rand.Text()+rand.Text(), make(chan net.Listener, 1)
	s.Workspace.Path = workspace
	s.Argv = g.begins()
	s.ReadOnly = append(s.ReadOnly, g.program.ReadOnly...)
	s.Home = sandbox.Home{Path: g.person, From: g.home.Dir}
	if g.hooked {
		if g.self, err = proc.Executable(); err != nil {
			return s, err
		}
	}
	s.Env = g.environment(s.Env, env)
	return s, nil
}

// openHome opens the private home. Its files belong to whom the box runs as: the owner of
// the workspace, where we are root.
func (g *guest) openHome(workspace string) error {
	own, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	uid, gid := -1, -1
	if os.Geteuid() == 0 {
		fi, err := os.Stat(workspace)
		if err != nil {
			return fmt.Errorf("asking whose the workspace is: %w", err)
		}
		if u, g, known := inode.OwnerOf(fi); known {
			uid, gid = u, g
		}
	}
	g.home, err = home.Open(paths.AgentHomes(own), g.adapter.Name, workspace, uid, gid)
	return err
}

// environment is env as the agent gets it: what the person named stays as he named it.
func (g *guest) environment(env []string, given named) []string {
	set := func(name, value string) {
		if slices.ContainsFunc(given, func(n string) bool { n, _, _ = strings.Cut(n, "="); return n == name }) {
			return
		}
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		env = append(env, name+"="+value)
	}
	env = slices.Clone(env)
	for name, value := range g.adapter.Environment {
		set(name, value)
	}
	for _, name := range g.adapter.Handed {
		if value, ok := paths.Variable(name); ok {
			set(name, value)
		}
	}
	set("HOME", g.person)
	search := strings.Join(append(slices.Clone(g.program.Search), paths.SystemPath()...), ":")
	set("PATH", search)
	return env
}

// lookAround is what an adapter may see of this machine.
func lookAround(person string) external.Look {
	return external.Look{
		Home: person,
		Path: func(program string) string {
			for _, dir := range paths.SearchPath() {
				at := filepath.Join(dir, program)
				if fi, err := os.Stat(at); err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0 {
					return at
				}
			}
			return ""
		},
		Real:    filepath.EvalSymlinks,
		Shebang: shebang,
	}
}

// shebang is the first line of a script, "" of anything else.
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head) // what cannot be read is no script
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	if !strings.HasPrefix(line, "#!") {
		return ""
	}
	return line
}

// proxyServer is the server by which an agent asks for hosts.
const proxyServer = `{"mcpServers":{"proxy":{"ringfence":{"builtin":"proxy"}}}}`

// opens is r for a session that also serves tools to the agent.
func (g *guest) opens(s *streams, f execFlags, r api.OpenRequest, tier sandbox.Tier) (api.OpenRequest, error) {
	if g == nil {
		return r, nil
	}
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	sums, err := g.readServers(log)
	if err != nil {
		return r, err
	}
	boxes, err := newBoxes(s, r.Workspace, f.tier)
	if err != nil {
		return r, err
	}
	m := mcpFlags{servers: g.servers, policy: f.policy, workspace: r.Workspace, persona: "default", agent: g.adapter.Name, ask: r.Ask}
	if g.boxes, err = m.among(boxes, g.list); err != nil {
		return r, err
	}
	g.boxes.Tier, g.boxes.Known = tier, map[string][]string{}
	open, err := openRequest(m, g.boxes, g.list)
	if err != nil {
		return r, err
	}
	r.Principal, r.Servers = open.Principal, open.Servers
	if g.hooked {
		r.Servers = append(r.Servers, agentTools(r.Workspace))
	}
	if g.servers != "" {
		r.Lists, r.Sums = open.Lists, sums
	}
	return r, nil
}

// readServers reads the list of servers, if there is one, and adds the one that every agent
// has.
func (g *guest) readServers(log *slog.Logger) (sums []string, err error) {
	if err := ownList(&g.servers); err != nil {
		return nil, err
	}
	if g.servers != "" {
		var sum string
		if g.list, sum, err = readList(g.servers, log); err != nil {
			return nil, err
		}
		sums = []string{sum}
	}
	if slices.ContainsFunc(g.list, func(s mediator.Server) bool { return s.Name == "proxy" }) {
		return sums, nil
	}
	own, _, err := mediator.ParseServers([]byte(proxyServer), paths.Variable)
	if err != nil {
		return nil, fmt.Errorf("reading the server that every agent has: %w", err)
	}
	g.list = append(g.list, own...)
	return sums, nil
}

// placed is err with the place in the list of servers that it is about.
func (g *guest) placed(err error) error {
	if g == nil {
		return err
	}
	return placed(err, g.servers, g.list)
}

// settle puts into the private home what the agent needs, gives it its arguments, and serves
// tools to it from the moment that its box is there.
func (g *guest) settle(ctx context.Context, s *streams, client *api.Client, session *api.Session, way *wayOut, spec sandbox.Spec) (sandbox.Spec, error) {
	if g == nil {
		return spec, nil
	}
	v := external.Values{
		Home: g.person, Workspace: spec.Workspace.Path, Token: g.token, Key: keyOf(g.adapter.Provider, way.keys),
		URL: "http://127.0.0.1:" + strconv.Itoa(bridge.ToolsPort) + listen.Path,
	}
	if g.last {
		v.ID = "last"
	}
	if g.hooked {
		v.Hook = hookProgram + " hook"
		spec.Placed = append(spec.Placed, sandbox.Placing{Path: hookProgram, File: g.self})
		spec.Env = append(spec.Env, envHookToken+"="+g.token)
	}
	notes, err := g.home.Settle(g.adapter, g.person, v, g.toolsOnly)
	if err != nil {
		return spec, err
	}
	s.sayEach("%s", notes)
	spec.Argv = append(g.begins(), g.adapter.Argv(v, g.toolsOnly, g.typed)...)
	if g.adapter.Plain(g.typed) {
		return spec, nil
	}
	return spec, g.serve(ctx, s, client, session)
}

// keyOf is what the box has in the place of the key of a provider, "" if it has none.
func keyOf(provider string, keys []loan.Sentinel) string {
	for _, k := range keys {
		if k.Name == provider {
			return k.Text
		}
	}
	return ""
}

// serve is the mediator of the session, for clients in the box.
func (g *guest) serve(ctx context.Context, s *streams, client *api.Client, session *api.Session) error {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelError}))
	known, err := serverServices(ctx, s, g.list)
	if err != nil {
		return err
	}
	m, err := mediate(g.boxes, g.list, session, client, known, log, 0)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// A client that closes its end is an error of writing, and not the end of this process.
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	stop := answerVerbs(m, session.Opened().Session, log)
	done := make(chan error, 1)
	go func() {
		l, err := g.first(running)
		if l == nil || err != nil {
			done <- err
			return
		}
		port := strconv.Itoa(bridge.ToolsPort)
		o := listen.Options{Token: g.token, Hosts: []string{"127.0.0.1:" + port, "localhost:" + port}, Log: log}
		if g.hooked {
			o.Beside = hooks.NewHandler(session, g.names())
		}
		done <- m.Serve(running, func(ctx context.Context) error { return listen.New(m, o).Serve(ctx, l) })
	}()
	g.stop = cancel
	g.end = func() error {
		cancel()
		err := <-done
		stop()
		signal.Stop(closed)
		return endOf(err)
	}
	return nil
}

// first waits for the first client in the box; nil if none comes. Servers are started for
// clients, and many agents have ended before they would be one.
func (g *guest) first(ctx context.Context) (net.Listener, error) {
	var l net.Listener
	select {
	case <-ctx.Done():
		return nil, nil
	case l = <-g.comes:
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // which is how waiting ends
	c, err := l.Accept()
	if !stop() || err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, errors.Join(err, closed(l))
	}
	first := &begunListener{Listener: l}
	first.conn.Store(&c)
	return first, nil
}

// A begunListener gives the connection that was accepted already first.
type begunListener struct {
	net.Listener
	conn atomic.Pointer[net.Conn]
}

// Accept implements [net.Listener].
func (l *begunListener) Accept() (net.Conn, error) {
	if c := l.conn.Swap(nil); c != nil {
		return *c, nil
	}
	return l.Listener.Accept()
}

// introduce says, when an agent starts in a workspace for the first time, what holds it: in
// five lines, of what the report of its box says and of what is on record.
func (g *guest) introduce(s *streams, r sandbox.Report, session string, spec sandbox.Spec) {
	if g == nil || !g.home.Fresh || g.adapter.Plain(g.typed) {
		return
	}
	for _, line := range g.introduction(r, spec.Workspace.Path) {
		s.say("%s", line)
	}
	s.say("record: \"ringfence ledger show %s\"; questions: \"ringfence approvals watch\" in another terminal", session)
}

// introduction are the lines about the box. What its report does not say is not claimed.
func (g *guest) introduction(r sandbox.Report, workspace string) []string {
	box := fmt.Sprintf("%s runs in a box of the tier %s: %s", g.adapter.Title, r.Tier, display.Count(len(r.Enforced), "layer was", "layers were")+" read back just now")
	if lacks := slices.DeleteFunc(slices.Clone(r.Missing), func(l string) bool { return strings.HasPrefix(l, sandbox.LayerCgroup) }); len(lacks) > 0 {
		box += "; not held: " + strings.Join(lacks, ", ")
	}
	files := "files: it may change " + workspace
	switch {
	case r.Evidence[sandbox.LayerWorkspace] != "":
		files = "files: what it changes in " + workspace + " is kept apart, for you to review"
	case slices.Contains(r.Inferred, sandbox.LayerHeld):
		files += ", but not what this machine runs later, such as git hooks"
	}
	if r.Evidence[sandbox.LayerHome] != "" {
		files += "; in the place of " + g.person + " it has a home of its own"
	}
	network := "network: the report of the box does not say what holds it"
	if r.Has(sandbox.LayerNetwork) || r.Has(sandbox.LayerNetworkNamespace) {
		network = "network: its own, of which no way leads out but by us; there each name, connection and request is decided"
	}
	return []string{box, files, network, "tools: those of " + display.Count(len(g.list), "server", "servers") + ", each call decided and on record"}
}

// names are the names of the agent's servers.
func (g *guest) names() (all []string) {
	for _, srv := range g.list {
		all = append(all, srv.Name)
	}
	return all
}

// answer takes the socket at which clients in the box come.
func (g *guest) answer(l net.Listener) { g.comes <- l }

// cut begins to end the servers that the guest has. It may be called of nil, and at any time
// once the guest has settled.
func (g *guest) cut() {
	if g != nil && g.stop != nil {
		g.stop()
	}
}

// leave ends what the guest had. It may be called of nil, and again.
func (g *guest) leave() error {
	if g == nil {
		return nil
	}
	var err error
	if g.end != nil {
		err = g.end()
		g.end = nil
	}
	select {
	case l := <-g.comes: // nobody took it
		return errors.Join(err, l.Close())
	default:
		return err
	}
}
