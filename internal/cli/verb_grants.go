package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
)

// newGrants is "ringfence grants".
func newGrants(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "grants",
		Short: "See what was granted to sessions, and take it back",
		Long: "A yes can be for a session (\"ringfence approvals approve ID --for session\"), and an\n" +
			"agent can ask for a connection that its policy does not allow (the tool\n" +
			"proxy.add_proxy_domain). What a person allows so is in force until the session ends,\n" +
			"or its engine.",
	}
	c.AddCommand(newGrantsList(s), newGrantsRevoke(s))
	return c
}

func newGrantsList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list [SESSION]",
		Short: "List the grants in force",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				all, err := e.Grants(c.Context(), strings.Join(args, ""))
				if err != nil {
					return err
				}
				return s.value(all, func() string {
					if len(all) == 0 {
						return "Nothing is granted.\n"
					}
					var b strings.Builder
					for _, g := range all {
						if g.ID == "" {
							fmt.Fprintf(&b, "%s  %s  connections to it\n", g.Session, g.Host)
							continue
						}
						by := ""
						if g.Tool != "" {
							by = g.Tool + ": "
						}
						fmt.Fprintf(&b, "%s  %s  %s%s (used %s)\n", g.Session, g.ID, by, g.Text, display.Count(g.Used, "time", "times"))
					}
					return b.String()
				})
			})
		},
	}
}

func newGrantsRevoke(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke SESSION ID|HOST:PORT",
		Short: "Take a grant back; connections that are open go on until they are closed",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			g := api.Grant{Session: args[0], ID: args[1]}
			if strings.Contains(args[1], ":") {
				g.ID, g.Host = "", args[1]
			}
			return with(c.Context(), connect, func(e *api.Client) error {
				err := e.RevokeGrant(c.Context(), g)
				if errors.Is(err, api.ErrNotFound) {
					return &exitError{code: codeFailed, err: err, hint: `"ringfence grants list" lists them`}
				}
				if err != nil {
					return err
				}
				return s.value(g, func() string { return "Revoked.\n" })
			})
		},
	}
}
