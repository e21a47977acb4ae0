package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/paths"
)

// newMCPTrust is "ringfence mcp trust".
func newMCPTrust(s *streams) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "trust FILE",
		Short: "Agree that the servers of a repository's list are started",
		Long: "A list of servers that came with a repository, such as .mcp.json, says what programs\n" +
			"are started on this machine. None is before a person has looked at the list, and\n" +
			"again after each change to it. The servers run in boxes all the same.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeDenied, "the list is not agreed to"}),
		RunE:        func(c *cobra.Command, args []string) error { return runTrust(c.Context(), s, args[0], yes) },
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func runTrust(ctx context.Context, s *streams, file string, yes bool) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("finding the list of servers: %w", err)
	}
	// What is shown is what is agreed to, whatever the file holds by then.
	src, err := os.ReadFile(file)
	if err != nil {
		return &exitError{code: codeUsage, err: fmt.Errorf("reading the list of servers: %w", err)}
	}
	servers, _, err := mediator.ParseServers(src, paths.Variable)
	if err != nil {
		return &exitError{code: codeUsage, err: fmt.Errorf("%s:%w", file, err)}
	}
	sum := sha256.Sum256(src)
	r := api.AdmitRequest{File: file, Sum: hex.EncodeToString(sum[:])}
	if !s.json {
		fmt.Fprint(s.out, printable(listText(file, servers)))
	}
	x := &examiner{s: s}
	if err := x.agree("May these programs be started, in boxes, for agents that use this list?", "the list is not agreed to", yes); err != nil {
		return err
	}
	if err := with(ctx, connect, func(e *api.Client) error { return e.Admit(ctx, r, nil) }); err != nil {
		return answerError(err)
	}
	return s.value(r, func() string { return fmt.Sprintf("Agreed to %s as it is now.\n", file) })
}

// listText shows what a list starts. Values of variables are not shown: they may be
// secrets.
func listText(file string, servers []mediator.Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s lists %s:\n", file, count(len(servers), "server"))
	for _, v := range servers {
		what := strings.Join(append([]string{v.Written.Command}, v.Written.Args...), " ")
		switch {
		case v.Ringfence.Builtin != "":
			what = "our own, " + v.Ringfence.Builtin
		case v.URL != "":
			what = v.Written.URL
		}
		fmt.Fprintf(&b, "  %-20s %s\n", v.Name, desk.Visible(what, 8*maxShown))
		if v.Ringfence.Unboxed {
			b.WriteString("                       without a box\n")
		}
		for _, p := range v.Ringfence.Paths {
			fmt.Fprintf(&b, "                       may reach %s\n", desk.Visible(p, maxShown))
		}
	}
	return b.String()
}
