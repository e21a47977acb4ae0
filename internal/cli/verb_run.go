package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/external"
	"ringfence/internal/sandbox"
)

// newRun is "ringfence run".
func newRun(s *streams) *cobra.Command {
	f := execFlags{verb: "run"}
	g := guest{}
	var detach bool
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
				if g.named() {
					return &exitError{code: codeUsage, err: errors.New("--servers and --tools-only are for an agent that is known"), hint: "name it in place of the command"}
				}
				if s.held == nil && (detach || s.atTerminal() && !s.json) {
					return s.hold(c.Context(), "", s.args, detach)
				}
				return runBoxed(c.Context(), s, f, args)
			}
			var err error
			if g.adapter, err = adapterOf(args[0]); err != nil {
				return err
			}
			if !c.Flags().Changed("net") {
				f.net = netPolicy
			}
			g.typed, f.guest = args[1:], &g
			if s.held == nil && (detach || s.atTerminal() && !s.json && !g.adapter.OneShot(g.typed) && !g.adapter.Plain(g.typed)) {
				return s.hold(c.Context(), "", s.args, detach)
			}
			return runBoxed(c.Context(), s, f, args[:1])
		},
	}
	f.flags(c, sandbox.ProfileAgent)
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&g.servers, "servers", "", "`FILE` that lists servers of MCP for an agent (default: those that \"mcp add\" has added)")
	c.Flags().BoolVar(&g.toolsOnly, "tools-only", false, "the agent's own tools are off: it works by those of ringfence, and each call is decided by itself")
	c.Flags().StringVar(&f.resumes, "resumes", "", "`SESSION` that this one goes on with, as \"ringfence sessions resume\" has it")
	c.Flags().Lookup("resumes").Hidden = true
	c.Flags().BoolVar(&detach, "detach", false, "do not stay: print the name of the session once it runs, for \"ringfence sessions attach\"")
	c.Flags().BoolVar(&g.last, "continue", false, "go on with the agent's last conversation in this workspace")
	return c
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
