package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
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
		text, err := listText(file, src, servers)
		if err != nil {
			return &exitError{code: codeUsage, err: err}
		}
		fmt.Fprint(s.out, printable(text))
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

// listText shows what a list starts: every entry whole, as it is written, and which
// variables of this environment its server is given. Values are not shown.
func listText(file string, src []byte, servers []mediator.Server) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s lists %s:\n", file, count(len(servers), "server"))
	for _, v := range servers {
		at, found, err := strictjson.Find(src, "/mcpServers/"+strictjson.Escape(v.Name))
		if err != nil || !found {
			return "", fmt.Errorf("%s: reading server %s: %w", file, v.Name, cmp.Or(err, errors.New("it is not there")))
		}
		if err := checkEntry(v.Name, at.Raw); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintf(&b, "%s\n%s", v.Name, wholeEntry(at.Raw))
		if v.Ringfence.Unboxed {
			b.WriteString("  ! it runs without a box, with your rights\n")
		}
		switch {
		case held(v):
			b.WriteString("  ! it reaches its hosts, as far as the policy allows it\n")
		case len(v.Ringfence.Hosts) > 0, v.Ringfence.Network != "":
			b.WriteString("  ! it reaches the network\n")
		}
		if a := v.Ringfence.Annotations; a != "" {
			fmt.Fprintf(&b, "  ! its tools count as those of %s, because it says so\n", desk.Visible(a, maxShown))
		}
	}
	return b.String(), nil
}

// variables are the names of variables that an entry is given, in order, each once.
func variables(raw []byte) []string {
	var names []string
	_ = strictjson.Walk(raw, func(v strictjson.Value) error { // it has been read before
		text, err := v.Text()
		if v.Kind != strictjson.String || err != nil {
			return nil //nolint:nilerr // it holds no variable
		}
		for {
			_, after, found := strings.Cut(text, "${")
			if !found {
				return nil
			}
			name, rest, _ := strings.Cut(after, "}")
			if name, _, _ = strings.Cut(name, ":-"); !slices.Contains(names, name) {
				names = append(names, name)
			}
			text = rest
		}
	})
	return names
}
