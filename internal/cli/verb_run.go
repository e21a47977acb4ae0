package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/external"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/paths"
)

// newRun is "ringfence run".
func newRun(s *streams) *cobra.Command {
	r := runVerb{s: s, f: execFlags{verb: "run"}}
	c := &cobra.Command{
		Use:   "run [flags] AGENT [ARGUMENT…], or -- CMD…",
		Short: "Run an agent, or any command, in a box that it works in",
		Long: "Run an agent, or any command, in a box in which it may change the workspace. Files\n" +
			"that this machine would run later, such as git hooks and the settings of editors,\n" +
			"are held. It gets a terminal of its own, as it would have yours.\n\n" +
			"An AGENT that is known (\"ringfence agents list\") has a private home in the place of\n" +
			"yours, with its own settings but no key of yours, a network of what the policy\n" +
			"allows, and the tools of \"ringfence mcp\". What follows its name is its own: flags of\n" +
			"ringfence come before it.",
		Example: "  ringfence run claude\n  ringfence run claude -p \"Why does the test fail?\"\n  ringfence run --policy ./coding codex\n" +
			"  ringfence run -- bash\n  ringfence run --policy ./coding -- tmux",
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(boxStatuses()...),
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() == 0 {
				return r.command(c, args)
			}
			return r.agent(c, args[0], args[1:])
		},
	}
	r.flags(c)
	return c
}

// newStart is "ringfence start", which is run for who comes from a program where agents are
// started.
func newStart(s *streams) *cobra.Command {
	r := runVerb{s: s, f: execFlags{verb: "run"}}
	var name string
	c := &cobra.Command{
		Use:         "start --agent AGENT [flags] [-- ARGUMENT…]",
		Short:       "Run an agent in a box, as \"run AGENT\" does",
		Example:     "  ringfence start --agent claude\n  ringfence start --agent claude -- -p \"Why does the test fail?\"",
		Args:        cobra.ArbitraryArgs,
		Annotations: exits(boxStatuses()...),
		RunE: func(c *cobra.Command, args []string) error {
			if name == "" {
				return &exitError{code: codeUsage, err: errors.New("start needs --agent"), hint: "\"ringfence agents list\" names those that are known"}
			}
			return r.agent(c, name, args)
		},
	}
	r.flags(c)
	c.Flags().StringVar(&name, "agent", "", "`AGENT` to run, as \"ringfence agents list\" names it")
	return c
}

// A runVerb is what the person said of what is to be run.
type runVerb struct {
	s      *streams
	f      execFlags
	g      guest
	detach bool
	fresh  bool
}

// command runs any command.
func (r *runVerb) command(c *cobra.Command, argv []string) error {
	if r.g.named() {
		return &exitError{code: codeUsage, err: errors.New("--servers, --tools-only and --continue are for an agent that is known"), hint: "name it in place of the command"}
	}
	return r.begin(c.Context(), argv, r.s.atTerminal() && !r.s.json)
}

// agent runs one that is known, with what the person typed for it.
func (r *runVerb) agent(c *cobra.Command, name string, typed []string) error {
	var err error
	if r.g.adapter, err = adapterOf(name); err != nil {
		return err
	}
	if !c.Flags().Changed("net") {
		r.f.net = netPolicy
	}
	r.g.typed, r.f.guest = typed, &r.g
	r.g.hooked, r.g.explained = r.g.asked(r.f.policy), r.f.explain
	held := r.s.atTerminal() && !r.s.json && !r.g.adapter.OneShot(typed) && !r.g.adapter.Plain(typed)
	if r.s.json && !held {
		var told bool
		if r.g.typed, told = r.g.adapter.Transcribed(typed); told {
			r.s.steps = r.g.adapter.Steps
		}
	}
	return r.begin(c.Context(), []string{name}, held)
}

// begin runs argv here, or has it held by a process of its own.
func (r *runVerb) begin(ctx context.Context, argv []string, held bool) error {
	if r.fresh && r.f.workspace != "" {
		return &exitError{code: codeUsage, err: errors.New("--fresh makes a workspace, and --workspace names one"), hint: "leave one of them out"}
	}
	if r.f.explain && r.fresh {
		return &exitError{code: codeUsage, err: errors.New("--explain starts nothing, and --fresh makes a workspace"), hint: "leave one of them out"}
	}
	if r.s.held == nil && (r.detach || held) && !r.f.explain {
		return r.s.hold(ctx, "", r.s.args, r.detach)
	}
	if r.fresh {
		dir, err := freshWorkspace(time.Now())
		if err != nil {
			return err
		}
		r.s.say("a fresh workspace: %s", dir)
		r.f.workspace = dir
	}
	return runBoxed(ctx, r.s, r.f, argv)
}

// freshWorkspace makes an empty directory to work in, which stays.
func freshWorkspace(now time.Time) (string, error) {
	base, err := paths.FreshWorkspaces()
	if err == nil {
		err = os.MkdirAll(base, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("making a workspace: %w", err)
	}
	dir, err := os.MkdirTemp(base, now.UTC().Format("20060102-150405-"))
	if err != nil {
		return "", fmt.Errorf("making a workspace: %w", err)
	}
	return dir, nil
}

func (r *runVerb) flags(c *cobra.Command) {
	f, g := &r.f, &r.g
	f.flags(c, sandbox.ProfileAgent)
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&g.servers, "servers", "", "`FILE` that lists servers of MCP for an agent (default: those that \"mcp add\" has added)")
	c.Flags().BoolVar(&g.toolsOnly, "tools-only", false, "the agent's own tools are off: it works by those of ringfence, and each call is decided by itself")
	c.Flags().BoolVar(&f.explain, "explain", false, "say of each clause of the policy what holds it, and start nothing")
	c.Flags().StringVar(&f.resumes, "resumes", "", "`SESSION` that this one goes on with, as \"ringfence sessions resume\" has it")
	c.Flags().Lookup("resumes").Hidden = true
	c.Flags().StringVar(&f.image, "image", "", "`IMAGE` that the box is made of, in which an agent is looked for; it is of the tier container")
	c.Flags().BoolVar(&r.fresh, "fresh", false, "work in a new, empty directory in ~/ringfence-work")
	c.Flags().BoolVar(&r.detach, "detach", false, "do not stay: print the name of the session once it runs, for \"ringfence sessions attach\"")
	c.Flags().BoolVar(&g.last, "continue", false, "go on with the agent's last conversation in this workspace")
}

// adapterOf is what is known of an agent.
func adapterOf(name string) (external.Adapter, error) {
	a, ok, err := external.Lookup(name)
	if err != nil || ok {
		return a, err
	}
	all, err := external.List()
	if err != nil {
		return a, err
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	e := &exitError{
		code: codeUsage, err: fmt.Errorf("no agent %q is known; there are %s", name, strings.Join(names, ", ")),
		hint: fmt.Sprintf("any other command runs with \"ringfence run -- %s\"", name),
	}
	if near := nearest(name, names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q? %s", near, e.hint)
	}
	return a, e
}
