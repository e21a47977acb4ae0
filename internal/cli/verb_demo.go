package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ringfence/internal/cli/demo"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// newDemo is "ringfence demo".
func newDemo(s *streams) *cobra.Command {
	var ask bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story on this machine: no key, no network",
		Long: "Run a scripted model that obeys a poisoned file, with real servers behind the real\n" +
			"gate, and show what was allowed, asked and refused, and why. Then verify the record,\n" +
			"and a copy of it with one bit changed. It works in a folder of its own. What needs a\n" +
			"person is answered by the story, or with --ask by you.",
		Annotations: exits(status{codeFailed, "the story did not end as it must"}),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := findProgram("git"); err != nil {
				return err
			}
			self, err := proc.Executable()
			if err != nil {
				return err
			}
			conf, _, err := settings()
			if err != nil {
				return err
			}
			tier, err := tierOf(s, conf.Box, "")
			if err != nil {
				return err
			}
			out := io.Writer(s.out)
			if s.json {
				out = io.Discard
			}
			o := demo.Options{
				Program: self, Tier: tier, Version: version, Path: paths.SearchPath(), Env: paths.ServerEnvironment(), Out: out,
			}
			if ask {
				o.Person = func(ctx context.Context, q api.Question) (bool, error) { return askHere(ctx, s.err, q) }
			}
			r, err := demo.Run(c.Context(), o)
			if err != nil {
				return err
			}
			return s.value(r, func() string { return fmt.Sprintf("Took %.1f s.\n", r.Took.Seconds()) })
		},
	}
	c.Flags().BoolVar(&ask, "ask", false, "answer yourself what needs a person, at this terminal")
	return c
}
