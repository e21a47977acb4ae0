package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/mediator"
	"ringfence/internal/sys/paths"
)

// addFlags are the flags of "ringfence mcp add" and "mcp import".
type addFlags struct {
	servers, policy, workspace string
	yes, force                 bool

	env, paths, hosts, headers []string
	cwd, annotations           string
}

func (f *addFlags) bind(c *cobra.Command) {
	c.Flags().StringVar(&f.servers, "servers", "", "list that is added to, a `FILE` (default: servers.json in the home)")
	c.Flags().StringVar(&f.policy, "policy", "", "compiled constitution that verdicts are shown of, a `DIR` (default: the default one)")
	c.Flags().StringVarP(&f.workspace, "workspace", "w", "", "`DIR` that the server is started in (default: the working directory)")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.force, "force", false, "replace a server of that name")
}

// list is the file that is added to.
func (f addFlags) list() (string, error) {
	if f.servers != "" {
		return filepath.Abs(f.servers)
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return "", err
	}
	return paths.ServersFile(home), nil
}

// newMCPAdd is "ringfence mcp add".
func newMCPAdd(s *streams) *cobra.Command {
	var f addFlags
	c := &cobra.Command{
		Use:   "add NAME (URL | -- CMD [ARG…])",
		Short: "Look at an MCP server, and add it",
		Long: "Start a server in a box, ask what tools it has, and show what an agent would be\n" +
			"allowed to do with them, and what in their definitions should be looked at. If a\n" +
			"person agrees, the server is in the list that \"ringfence mcp\" uses, its definitions\n" +
			"are approved as they were shown, and what says what its tools do is drafted by rule\n" +
			"where nothing does.",
		Example: "  ringfence mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n" +
			"  ringfence mcp add notes --env NOTES_KEY='${NOTES_KEY}' -- notes-mcp --stdio",
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(status{codeDenied, "nothing was added"}),
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() == 0 {
				return &exitError{code: codeUsage, err: errors.New("give the server a name, before --")}
			}
			entry, err := f.entry(args[1:], c.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return runAdd(c.Context(), s, f, args[0], entry)
		},
	}
	f.bind(c)
	c.Flags().StringArrayVarP(&f.env, "env", "e", nil, "variable of the server, `NAME=VALUE`; ${NAME} in the value is read when it starts")
	c.Flags().StringArrayVar(&f.headers, "header", nil, "header of each request to a URL, `NAME=VALUE`")
	c.Flags().StringArrayVar(&f.paths, "path", nil, "`PATH` that the server may reach beside the workspace")
	c.Flags().StringArrayVar(&f.hosts, "host", nil, "`HOST` that the server may reach, as far as the policy allows it: a.example, *.a.example, a.example:8443")
	c.Flags().StringVar(&f.cwd, "cwd", "", "`DIR` that the server is always started in")
	c.Flags().StringVar(&f.annotations, "annotations", "", "`NAME` of what says what its tools do")
	return c
}

// entry is the entry that the command line describes: dash is where "--" stood.
func (f addFlags) entry(words []string, dash int) ([]byte, error) {
	usage := func(text string) error { return &exitError{code: codeUsage, err: errors.New(text)} }
	e := map[string]any{}
	switch {
	case len(words) == 0:
		return nil, usage("say what the server is: a URL, or a command after --")
	case dash < 0 && len(words) == 1 && strings.Contains(words[0], "://"):
		e["url"] = words[0]
	case dash > 1:
		return nil, usage(fmt.Sprintf("%d words stand before --, where the name of the server stands alone", dash))
	case dash < 0:
		return nil, usage("write -- before the command, so that its flags are its own")
	case len(words) == 1 && strings.Contains(words[0], "://"):
		return nil, usage("a server with a URL is no command: write it without --")
	default:
		e["command"] = words[0]
		if len(words) > 1 {
			e["args"] = words[1:]
		}
	}
	for name, given := range map[string][]string{"env": f.env, "headers": f.headers} {
		values, err := assignments(given)
		if err != nil {
			return nil, usage(fmt.Sprintf("--%s: %v", strings.TrimSuffix(name, "s"), err))
		}
		if len(values) > 0 {
			e[name] = values
		}
	}
	if f.cwd != "" {
		e["cwd"] = f.cwd
	}
	own := map[string]any{}
	if len(f.paths) > 0 {
		own["paths"] = f.paths
	}
	if len(f.hosts) > 0 {
		own["hosts"] = f.hosts
	}
	if f.annotations != "" {
		own["annotations"] = f.annotations
	}
	if len(own) > 0 {
		e["ringfence"] = own
	}
	return json.Marshal(e)
}

// assignments reads NAME=VALUE.
func assignments(list []string) (map[string]string, error) {
	values := map[string]string{}
	for _, a := range list {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", a)
		}
		values[name] = value
	}
	return values, nil
}

func runAdd(ctx context.Context, s *streams, f addFlags, name string, entry []byte) error {
	if err := mediator.CheckName(name); err != nil {
		return &exitError{code: codeUsage, err: err}
	}
	file, err := f.list()
	if err != nil {
		return err
	}
	x, err := newExaminer(s, file, f.workspace, f.policy)
	if err != nil {
		return err
	}
	if !f.force && x.listed(name) {
		return &exitError{code: codeFailed, err: fmt.Errorf("%s has a server %s", file, name), hint: "--force replaces it"}
	}
	c, err := x.examine(ctx, name, entry)
	if err != nil {
		return err
	}
	if !s.json {
		fmt.Fprintf(s.out, "%s\n", printable(candidateText(c)))
	}
	if err := x.agree(fmt.Sprintf("Add server %s to %s?", name, file), "nothing was added", f.yes); err != nil {
		return err
	}
	if err := x.add(ctx, []*candidate{c}, f.force); err != nil {
		return err
	}
	return s.value(struct {
		File   string     `json:"file"`
		Server *candidate `json:"server"`
	}{file, c}, func() string { return addedText(file, []*candidate{c}) })
}

// addedText says what was done, and what comes next.
func addedText(file string, all []*candidate) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "Added %s to %s, with %s approved as shown.\n", c.Name, file, count(len(c.Tools), "definition"))
	}
	drafted := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return !c.Drafted })
	names := map[string]bool{}
	for _, c := range drafted {
		names[c.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "What its tools do was drafted: correct annotations/%s.json in the home if it is wrong.\n", name)
	}
	b.WriteString("Clients reach it through `ringfence mcp`, once they are started again.\n")
	return b.String()
}
