package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/daemon/api"
)

// newTools is "ringfence tools".
func newTools(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "tools",
		Short: "Review the definitions of tools",
		Long: "A tool is called only while its definition is one that was shipped with us or that\n" +
			"a person approved. A definition that changes blocks its tool until it is reviewed, and\n" +
			"a program that changes keeps its server from being started.",
	}
	c.AddCommand(newToolsList(s), newToolsReview(s), newToolsPin(s))
	return c
}

func newToolsList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list [SERVER[.TOOL]]",
		Short: "List definitions that were reviewed or wait for it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				pins, err := e.ToolsList(c.Context(), toolQuery(args))
				if err != nil {
					return err
				}
				if pins == nil {
					pins = []api.ToolPin{}
				}
				return s.value(pins, func() string {
					var b strings.Builder
					for _, p := range pins {
						fmt.Fprintf(&b, "%-9s %.16s  %s", p.Status, p.Hash, pinName(p))
						if n := len(p.Remarks); n > 0 {
							fmt.Fprintf(&b, "  (%s: ringfence tools review %s)", count(n, "remark"), pinName(p))
						}
						b.WriteByte('\n')
					}
					if len(pins) == 0 {
						return "No definition waits; those shipped with us need no review.\n"
					}
					return b.String()
				})
			})
		},
	}
}

func newToolsReview(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "review [SERVER[.TOOL]]",
		Short: "Show definitions, and what changed in them",
		Long: "Show definitions that wait for review, with what changed since the approved one.\n" +
			"Invisible characters are made visible. \"ringfence tools pin\" settles one.",
		Args:        cobra.MaximumNArgs(1),
		Annotations: exits(status{codeFailed, "definitions wait for review"}),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				pins, err := e.ToolsReview(c.Context(), toolQuery(args))
				if err != nil {
					return err
				}
				waiting := []api.ToolPin{}
				for _, p := range pins {
					if p.Status == "proposed" || p.Status == "drifted" {
						waiting = append(waiting, p)
					}
				}
				if len(pins) == 0 && len(args) == 1 && !s.json {
					s.say("nothing is known of %s: a tool is noted when a client lists it", args[0])
				}
				if err := s.value(waiting, func() string { return reviewText(waiting) }); err != nil {
					return err
				}
				if len(waiting) > 0 {
					return &exitError{code: codeFailed}
				}
				return nil
			})
		},
	}
}

func reviewText(waiting []api.ToolPin) string {
	if len(waiting) == 0 {
		return "Nothing waits for review.\n"
	}
	var b strings.Builder
	for _, p := range waiting {
		fmt.Fprintf(&b, "%s is %s, hash %s\n%s", what(p), p.Status, p.Hash, p.Diff)
		for _, r := range p.Remarks {
			fmt.Fprintf(&b, "look at:  %s\n", r)
		}
		fmt.Fprintf(&b, "approve:  ringfence tools pin %s %s\nreject:   ringfence tools pin --reject %s %s\n\n", pinName(p), p.Hash, pinName(p), p.Hash)
	}
	return b.String()
}

// pinName is what a person calls the tool, or the program of a server, that p is about.
func pinName(p api.ToolPin) string {
	if p.Tool == "" {
		return p.Server
	}
	return p.Server + "." + p.Tool
}

// what is pinName in a sentence.
func what(p api.ToolPin) string {
	if p.Tool == "" {
		return "The program of server " + p.Server
	}
	return pinName(p)
}

func newToolsPin(s *streams) *cobra.Command {
	var reject bool
	c := &cobra.Command{
		Use:         "pin SERVER[.TOOL] HASH",
		Short:       "Approve or reject the definition, or the program of a server, with that hash",
		Args:        cobra.ExactArgs(2),
		Annotations: exits(status{codeDenied, "this process may not settle it"}),
		RunE: func(c *cobra.Command, args []string) error {
			server, tool, ok := strings.Cut(args[0], ".")
			if server == "" || ok && tool == "" {
				return &exitError{code: codeUsage, err: fmt.Errorf("%q is no tool and no server: it is SERVER.TOOL, or SERVER for its program", args[0])}
			}
			return with(c.Context(), connect, func(e *api.Client) error {
				hash, err := wholeHash(c.Context(), e, server, tool, args[1])
				if err != nil {
					return err
				}
				p, err := e.ToolsPin(c.Context(), api.PinRequest{Server: server, Tool: tool, Hash: hash, Approve: !reject})
				if err != nil {
					return answerError(err)
				}
				return s.value(p, func() string { return fmt.Sprintf("%s is %s\n", what(p), p.Status) })
			})
		},
	}
	c.Flags().BoolVar(&reject, "reject", false, "reject it")
	return c
}

// minHash is how many digits of a hash name it: 64 bits, which nobody can make a
// second definition for.
const minHash = 16

// wholeHash completes the beginning of a hash to that of the definition that waits.
func wholeHash(ctx context.Context, e *api.Client, server, tool, hash string) (string, error) {
	if len(hash) < minHash {
		return "", &exitError{code: codeUsage, err: fmt.Errorf("%q is too short for a hash: give at least %d digits", hash, minHash)}
	}
	pins, err := e.ToolsList(ctx, api.ToolQuery{Server: server, Tool: tool})
	if err != nil {
		return "", err
	}
	for _, p := range pins {
		if strings.HasPrefix(p.Hash, hash) {
			return p.Hash, nil
		}
	}
	return hash, nil
}

func toolQuery(args []string) api.ToolQuery {
	if len(args) == 0 {
		return api.ToolQuery{}
	}
	server, tool, _ := strings.Cut(args[0], ".")
	return api.ToolQuery{Server: server, Tool: tool}
}
