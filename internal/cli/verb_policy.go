package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/daemon"
	"ringfence/internal/policy"
	"ringfence/internal/sys/paths"
)

// newPolicy is "ringfence policy".
func newPolicy(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Look at a compiled constitution, and ask what it would decide",
	}
	c.AddCommand(newPolicyEval(s), newPolicyShow(s))
	return c
}

// maxCase bounds one line of "policy eval", in bytes.
const maxCase = 16 << 20

func newPolicyEval(s *streams) *cobra.Command {
	var dir, workspace string
	c := &cobra.Command{
		Use:   "eval",
		Short: "Say what would be decided of calls and effects",
		Long: "Read JSON Lines from standard input and say, in the same order, what would be\n" +
			"decided. Nothing is done, recorded or asked. A line is\n\n" +
			`  {"id": 1, "tool": "filesystem.read_text_file", "args": {"path": "a.txt"}}` + "\n" +
			`  {"id": 2, "effect": "connect", "resource": "https://example.com"}` + "\n\n" +
			`optionally with "principal", "context" ("labels", "approved", "history") and "now";` + "\n" +
			`the answer is {"id", "verdict", "rules", "reason", "effects"}.`,
		Example: `  echo '{"tool":"filesystem.read_text_file","args":{"path":"a.txt"}}' | ringfence policy eval --workspace .`,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			e, err := daemon.NewEvaluator(home, dir, workspace)
			if err != nil {
				return &exitError{code: codeUsage, err: err}
			}
			return evalLines(s, e)
		},
	}
	c.Flags().StringVar(&dir, "policy", "", "compiled constitution, a `DIR`; without it the default one")
	c.Flags().StringVarP(&workspace, "workspace", "w", ".", "`DIR` that relative paths and \"the workspace\" mean")
	return c
}

func evalLines(s *streams, e *daemon.Evaluator) error {
	in := bufio.NewScanner(s.in)
	in.Buffer(nil, maxCase)
	for n := 1; in.Scan(); n++ {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		r, err := e.Eval(in.Bytes())
		if err != nil {
			return &exitError{code: codeUsage, err: fmt.Errorf("standard input, line %d: %w", n, err)}
		}
		if err := s.line(r); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	return nil
}

func newPolicyShow(s *streams) *cobra.Command {
	var dir string
	var english, cedar bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show what a compiled constitution enforces, clause by clause",
		RunE: func(c *cobra.Command, _ []string) error {
			clauses, text, err := loadClauses(dir)
			if err != nil {
				return err
			}
			switch {
			case s.json:
				return s.value(clauses, nil)
			case cedar:
				_, err = s.out.Write(text)
			default:
				_, err = s.out.Write([]byte(clausesText(clauses, english)))
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "policy", "", "compiled constitution, a `DIR`; without it the default one")
	c.Flags().BoolVar(&english, "english", false, "only what was understood, as controlled English")
	c.Flags().BoolVar(&cedar, "cedar", false, "the Cedar that is evaluated")
	return c
}

// loadClauses reads a bundle that this home trusts, or compiles the default.
func loadClauses(dir string) ([]policy.Clause, []byte, error) {
	if dir == "" {
		c, err := compileShipped("default")
		if err != nil {
			return nil, nil, err
		}
		return c.Clauses, c.Cedar, nil
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, nil, err
	}
	key, err := policyKey(home)
	if err != nil {
		return nil, nil, err
	}
	// Symbolic roots need some binding to load; nothing here is decided by it.
	_, b, err := policy.LoadBundle(os.DirFS(dir), policy.Options{Trusted: key, Binding: policy.Binding{Workspace: "/workspace", Home: "/home"}})
	if err != nil {
		return nil, nil, &exitError{code: codeUsage, err: fmt.Errorf("loading the policy: %w", daemon.Unbundled(dir, err))}
	}
	return b.Clauses, b.Layer.Text, nil
}

func clausesText(clauses []policy.Clause, english bool) string {
	var b strings.Builder
	last := ""
	for _, c := range clauses {
		state := "enforced"
		if c.Modality == policy.Advice {
			state = "advice"
		}
		if english {
			if c.Modality != policy.Advice {
				fmt.Fprintf(&b, "- %s\n", policy.English(c))
			}
			continue
		}
		if c.ID != last {
			fmt.Fprintf(&b, "%-4s line %-3d %-8s “%s”\n", c.ID, c.Line, state, c.Text)
		}
		last = c.ID
		if c.Modality != policy.Advice {
			fmt.Fprintf(&b, "%23s= %s\n", "", policy.English(c))
		}
	}
	return b.String()
}
