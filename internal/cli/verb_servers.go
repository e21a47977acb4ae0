package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/control"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/paths"
)

// newServers is "ringfence servers".
func newServers(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "servers",
		Short: "Look at MCP servers, and restart or try one",
		Long: "Look at the servers of every \"ringfence mcp\" of this home that runs, and restart\n" +
			"one; or try a server of a list without an agent.",
	}
	c.AddCommand(newServersList(s), newServersLogs(s), newServersRestart(s), newServersTest(s), newServersLogin(s), newServersLogout(s))
	return c
}

// A heldServer is one server of a running mediator.
type heldServer struct {
	Session string `json:"session"`
	PID     int    `json:"pid"`
	serverState
}

// A serverState is a mediator.State as JSON has it.
type serverState struct {
	Name    string    `json:"name"`
	Up      bool      `json:"up"`
	Box     string    `json:"box,omitempty"`
	Error   string    `json:"error,omitempty"`
	Era     string    `json:"era,omitempty"`
	Starts  int       `json:"starts"`
	Since   time.Time `json:"since,omitzero"`
	Tools   int       `json:"tools"`
	Answers string    `json:"answers,omitempty"`
}

func newServersList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:         "list",
		Short:       "List the servers that run, and whether they answer",
		Annotations: exits(status{codeFailed, "a server is down or does not answer"}),
		RunE: func(c *cobra.Command, _ []string) error {
			all := []heldServer{}
			bad := false
			err := eachMediator(c.Context(), control.Question{What: control.List}, func(pid int, a control.Answer) error {
				for _, st := range a.Servers {
					h := heldServer{a.Session, pid, serverState{
						Name: st.Name, Up: st.Up, Box: st.Report, Error: st.Error, Era: st.Era, Starts: st.Starts, Since: st.Since, Tools: st.Tools,
					}}
					if st.Answers > 0 {
						h.Answers = st.Answers.Round(10 * time.Microsecond).String()
					}
					bad = bad || st.Error != ""
					all = append(all, h)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := s.value(all, func() string { return heldText(all) }); err != nil {
				return err
			}
			if bad {
				return &exitError{code: codeFailed}
			}
			return nil
		},
	}
}

func heldText(all []heldServer) string {
	if len(all) == 0 {
		return "No server runs: there is no \"ringfence mcp\" of this home.\n"
	}
	var b strings.Builder
	for _, h := range all {
		state := "down"
		if h.Up {
			state = "up"
		}
		fmt.Fprintf(&b, "%-16s %-5s %s, %s, started %s", h.Name, state, h.Session, count(h.Tools, "tool"), count(h.Starts, "time"))
		if h.Answers != "" {
			fmt.Fprintf(&b, ", answers in %s", h.Answers)
		}
		b.WriteString("\n")
		if h.Box != "" {
			fmt.Fprintf(&b, "%-16s       box: %s\n", "", shortBox(h.Box))
		}
		if h.Error != "" {
			fmt.Fprintf(&b, "%-16s       %s\n", "", h.Error)
		}
	}
	return b.String()
}

func newServersLogs(s *streams) *cobra.Command {
	var session string
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a server wrote to standard error, the last 64 KiB",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			type logged struct {
				Session string `json:"session"`
				Log     string `json:"log"`
			}
			var all []logged
			err := oneServer(c.Context(), control.Log, args[0], session, func(a control.Answer) {
				all = append(all, logged{a.Session, a.Log})
			})
			if err != nil {
				return err
			}
			return s.value(all, func() string {
				var b strings.Builder
				for _, l := range all {
					if len(all) > 1 {
						fmt.Fprintf(&b, "== %s\n", l.Session)
					}
					b.WriteString(l.Log)
				}
				return b.String()
			})
		},
	}
	c.Flags().StringVar(&session, "session", "", "only of the session `ID`")
	return c
}

func newServersRestart(s *streams) *cobra.Command {
	var session string
	c := &cobra.Command{
		Use:         "restart NAME",
		Short:       "Stop a server and start it again; what it is doing fails",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "it does not come up again"}),
		RunE: func(c *cobra.Command, args []string) error {
			type restarted struct {
				Session string `json:"session"`
				Name    string `json:"name"`
			}
			all := []restarted{}
			err := oneServer(c.Context(), control.Restart, args[0], session, func(a control.Answer) {
				all = append(all, restarted{a.Session, args[0]})
			})
			if err != nil {
				return err
			}
			return s.value(all, func() string { return fmt.Sprintf("%s is up again, in %s\n", args[0], count(len(all), "session")) })
		},
	}
	c.Flags().StringVar(&session, "session", "", "only in the session `ID`")
	return c
}

// eachMediator asks every mediator of this home, in the order of their process ids.
func eachMediator(ctx context.Context, q control.Question, f func(pid int, a control.Answer) error) error {
	socket, err := engineSocket()
	if err != nil {
		return err
	}
	running, err := control.Running(socket)
	if err != nil {
		return err
	}
	var dead []string
	for _, pid := range slices.Sorted(maps.Keys(running)) {
		a, err := control.Ask(ctx, running[pid], q)
		if err != nil {
			dead = append(dead, running[pid])
			continue
		}
		if err := f(pid, a); err != nil {
			return err
		}
	}
	control.Sweep(dead)
	return nil
}

// oneServer asks what of a server in every session that has it, or in the one that is named.
func oneServer(ctx context.Context, what, name, session string, f func(control.Answer)) error {
	var wrong error
	found := false
	err := eachMediator(ctx, control.Question{What: control.List}, func(pid int, a control.Answer) error {
		if session != "" && a.Session != session {
			return nil
		}
		has := func(st mediator.State) bool { return st.Name == name }
		if !slices.ContainsFunc(a.Servers, has) {
			return nil
		}
		found = true
		socket, err := engineSocket()
		if err != nil {
			return err
		}
		a, err = control.Ask(ctx, control.Path(socket, pid), control.Question{What: what, Server: name})
		if err == nil && a.Error != "" {
			err = fmt.Errorf("server %s of %s: %s", name, a.Session, a.Error)
		}
		if err != nil {
			wrong = errors.Join(wrong, err)
			return nil
		}
		f(a)
		return nil
	})
	if err == nil && !found {
		return &exitError{code: codeFailed, err: fmt.Errorf("no server %q runs", name), hint: `"ringfence servers list" lists those that do`}
	}
	return errors.Join(err, wrong)
}

func engineSocket() (string, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return "", err
	}
	return paths.EngineSocket(home)
}

// answerVerbs lets "ringfence servers" look at m, until stop is called. That it cannot
// be asked is no reason not to serve.
func answerVerbs(m *mediator.Mediator, session string, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		socket, err := engineSocket()
		if err == nil {
			err = control.Serve(ctx, control.Path(socket, os.Getpid()), session, m)
		}
		if err != nil {
			log.Warn(`"ringfence servers" will not see the servers of this process`, slog.Any("err", err))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func newServersTest(s *streams) *cobra.Command {
	var file, workspace, tier string
	c := &cobra.Command{
		Use:   "test [NAME]",
		Short: "Start the servers of a list, or one, and say whether they work",
		Long: "Start each server of a list in its box, or reach it, read its tools, ask whether\n" +
			"it answers, and stop it. No tool is called. Requests to other machines are decided by\n" +
			"the default constitution; without a terminal nobody is asked, and what would need a\n" +
			"yes is denied.",
		Args:        cobra.MaximumNArgs(1),
		Annotations: exits(status{codeFailed, "one does not work, or has a tool that no agent can call before a review"}),
		RunE: func(c *cobra.Command, args []string) error {
			return testServers(c.Context(), s, mcpFlags{servers: file, workspace: workspace, tier: tier}, args)
		},
	}
	c.Flags().StringVar(&file, "servers", "", "`FILE` that lists the servers (default: those that \"mcp add\" has added)")
	c.Flags().StringVarP(&workspace, "workspace", "w", "", "`DIR` that they work in (default: the working directory)")
	c.Flags().StringVar(&tier, "tier", "", "how servers are confined: native, container, or none (default: as configured)")
	return c
}

// A testedServer is a mediator.Trial as JSON has it.
type testedServer struct {
	Name     string `json:"name"`
	Works    bool   `json:"works"`
	Box      string `json:"box,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Tools    int    `json:"tools"`
	Ready    string `json:"ready,omitempty"`
	Answers  string `json:"answers,omitempty"`
	Error    string `json:"error,omitempty"`
	Log      string `json:"log,omitempty"`

	Allow    string   `json:"allow,omitempty"`      // a sentence that lets requests through, if one was denied
	OutOfUse []string `json:"out_of_use,omitempty"` // tools that no agent can call before a review

	remote bool
}

func testServers(ctx context.Context, s *streams, f mcpFlags, args []string) (err error) {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelError}))
	if err := ownList(&f.servers); err != nil {
		return err
	}
	servers, err := agreedServers(f.servers, log)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if servers, err = only(servers, args[0]); err != nil {
			return err
		}
	}
	boxes, err := newBoxes(s, f.workspace, f.tier)
	if err != nil {
		return err
	}
	if boxes, err = f.among(boxes, servers); err != nil {
		return err
	}
	// There is no session, and nothing that the servers do is done for an agent.
	boxes.Record = func(context.Context, string, sandbox.Report) error { return nil }
	p := &personSession{s: s, verb: "test"}
	if !s.atTerminal() {
		p.f.asks.ask = api.AskNever // a trial that waits for a person says nothing of the server
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if err := p.ways(ctx, &boxes, servers); err != nil {
		return err
	}
	all := []testedServer{}
	works := true
	home, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	boxes.Blocked = map[string]string{}
	for _, server := range servers {
		lines, err := boxes.Identity(server)
		if err == nil {
			err = daemon.CheckProgram(home, server.Name, lines)
		}
		if err != nil {
			boxes.Blocked[server.Name] = err.Error()
		}
		t := mediator.Try(ctx, mediator.Options{Starter: reachingOnce(boxes, p), Version: version, Log: slog.New(slog.DiscardHandler)}, server)
		r := tested(t)
		r.remote = server.Remote()
		if p.denials.Swap(0) > 0 && t.Error != "" {
			r.Allow = allowing(server)
		}
		if r.OutOfUse, err = daemon.OutOfUse(home, server.Name, t.List); err != nil {
			return err
		}
		all = append(all, r)
		works = works && t.Error == "" && len(r.OutOfUse) == 0
	}
	if err := s.value(all, func() string { return testedText(all) }); err != nil {
		return err
	}
	if !works {
		return &exitError{code: codeFailed}
	}
	return nil
}

// only returns the server of that name.
func only(servers []mediator.Server, name string) ([]mediator.Server, error) {
	var names []string
	for _, srv := range servers {
		if srv.Name == name {
			return []mediator.Server{srv}, nil
		}
		names = append(names, srv.Name)
	}
	e := &exitError{code: codeUsage, err: fmt.Errorf("the list has no server %q", name)}
	if near := strictjson.Nearest(name, names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return nil, e
}

func tested(t mediator.Trial) testedServer {
	r := testedServer{
		Name: t.Name, Works: t.Error == "", Box: t.Report, Protocol: t.Protocol, Tools: t.Tools, Error: t.Error, Log: t.Log,
	}
	if t.Ready > 0 {
		r.Ready = t.Ready.Round(100 * time.Microsecond).String()
	}
	if t.Answers > 0 {
		r.Answers = t.Answers.Round(10 * time.Microsecond).String()
	}
	return r
}

// allowing is the sentence of a constitution that lets requests to a server through; "" if
// it has no host.
func allowing(server mediator.Server) string {
	at, err := url.Parse(server.URL)
	if err != nil || at.Hostname() == "" {
		return ""
	}
	host := at.Hostname()
	return fmt.Sprintf("The agent may fetch from %s and send to %s.", host, host)
}

// onceEach returns what the lines of a log say beside what is said already, without the
// requests that they are about: each request to a server that is not reached comes to the same.
func onceEach(log, said string) (all []string) {
	for line := range strings.Lines(log) {
		_, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && !strings.Contains(said, text) && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func testedText(all []testedServer) string {
	var b strings.Builder
	for _, t := range all {
		if t.Works {
			fmt.Fprintf(&b, "%-16s works: MCP %s, %s, ready in %s, answers in %s\n", t.Name, t.Protocol, count(t.Tools, "tool"), t.Ready, t.Answers)
			if n := len(t.OutOfUse); n > 0 {
				fmt.Fprintf(&b, "%-16s but no agent can call %s: changed since approved, or rejected; once a client has connected, `ringfence tools review %s` shows it\n",
					"", strings.Join(t.OutOfUse, ", "), t.Name)
			}
		} else {
			fmt.Fprintf(&b, "%-16s does not work: %s\n", t.Name, t.Error)
			if t.Allow != "" {
				fmt.Fprintf(&b, "%-16s a sentence of your constitution that allows it: %s\n", "", t.Allow)
			}
		}
		if t.Box != "" {
			fmt.Fprintf(&b, "%-16s box: %s\n", "", shortBox(t.Box))
		}
		switch log := strings.TrimRight(t.Log, "\n"); {
		case t.Works || log == "":
		case t.remote:
			for _, line := range onceEach(log, t.Error) {
				fmt.Fprintf(&b, "%-16s %s\n", "", line)
			}
		default:
			fmt.Fprintf(&b, "%-16s it wrote:\n%s\n", "", log)
		}
	}
	if len(all) == 0 {
		return "The list has no server.\n"
	}
	return b.String()
}
