package cli

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/constitution"
	"ringfence/internal/daemon"
	"ringfence/internal/policy"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// newConstitution is "ringfence constitution".
func newConstitution(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "constitution",
		Short: "Compile the English that says what agents may do",
	}
	c.AddCommand(newConstitutionCheck(s), newCompile(s, "compile FILE"), newConstitutionShipped(s))
	return c
}

// compiled is what the verbs print of a compiled constitution.
type compiled struct {
	Bundle   string                 `json:"bundle,omitempty"`
	Clauses  []clauseLine           `json:"clauses"`
	Findings []constitution.Finding `json:"findings"`
	Took     string                 `json:"took"`
}

type clauseLine struct {
	ID      string `json:"id"`
	Line    int    `json:"line"`
	Status  string `json:"status"` // enforced or advice
	Text    string `json:"text"`
	English string `json:"english,omitempty"` // what was understood
}

// sourceFlags say how a constitution is compiled.
type sourceFlags struct {
	layer, lists string
	noModel      bool
}

func (f *sourceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.layer, "layer", "", "compile a layer of that name that only narrows (organisation, user) instead of the one that grants")
	c.Flags().StringVar(&f.lists, "lists", "", "JSON `FILE` with the lists that it names (default: lists.json beside FILE, if there is one)")
	c.Flags().BoolVar(&f.noModel, "no-model", false, "never ask a model (none is asked in this version)")
}

func newConstitutionCheck(s *streams) *cobra.Command {
	var f sourceFlags
	c := &cobra.Command{
		Use:         "check FILE",
		Short:       "Say how each sentence is understood, and what is wrong",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "something is not understood"}),
		RunE: func(_ *cobra.Command, args []string) error {
			c, took, err := compileFile(args[0], f)
			if err != nil {
				return err
			}
			return s.value(view(c, "", took), func() string { return compiledText(view(c, "", took)) })
		},
	}
	f.add(c)
	return c
}

// newCompile is "constitution compile" and "compile-policy".
func newCompile(s *streams, use string) *cobra.Command {
	var f sourceFlags
	var out string
	c := &cobra.Command{
		Use:         use,
		Short:       "Compile a constitution into a signed bundle",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "something is not understood, or a scenario fails; the last good bundle stays"}),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return &exitError{code: codeUsage, err: errors.New("-o is missing: the directory to write the bundle to")}
			}
			c, took, err := compileFile(args[0], f)
			if err != nil {
				return err
			}
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			key, err := keychain.LoadOrCreate(daemon.PolicyKey(home))
			if err != nil {
				return err
			}
			if err := constitution.Write(out, c, version, key); err != nil {
				return err
			}
			return s.value(view(c, out, took), func() string {
				return compiledText(view(c, out, took)) + fmt.Sprintf("%s: signed with the key of this home\n", out)
			})
		},
	}
	f.add(c)
	c.Flags().StringVarP(&out, "output", "o", "", "`DIR` to write the bundle to")
	return c
}

func newConstitutionShipped(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "shipped [NAME]",
		Short: "Print a constitution that comes with ringfence, or list them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				names := constitution.ShippedNames()
				return s.value(names, func() string { return strings.Join(names, "\n") + "\n" })
			}
			text, _, err := constitution.Shipped(args[0])
			if err != nil {
				return &exitError{code: codeUsage, err: err}
			}
			return s.value(string(text), func() string { return string(text) })
		},
	}
}

// compileFile compiles a constitution, or a shipped one if no file has that name.
func compileFile(name string, f sourceFlags) (*constitution.Compiled, time.Duration, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the constitution: %w", err)
	}
	lists, err := readLists(name, f.lists)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	c, err := constitution.Compile(
		constitution.Source{Name: name, Text: text, Layer: f.layer},
		constitution.Options{Granting: f.layer == "", Lists: lists})
	if _, ok := errors.AsType[*constitution.Errors](err); ok {
		return nil, 0, &exitError{code: codeFailed, err: err, hint: "docs/constitution.md has the sentences that are understood"}
	}
	took := time.Since(began)
	if err == nil {
		err = linked(c)
	}
	return c, took, err
}

// readLists reads the lists of a constitution: those of file, else those beside
// it, else those that come with ringfence.
func readLists(constitutionFile, file string) (map[string]policy.List, error) {
	named := file != ""
	if !named {
		file = filepath.Join(filepath.Dir(constitutionFile), "lists.json")
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && !named {
		_, lists, err := constitution.Shipped("coding")
		return lists, err
	}
	if err != nil {
		return nil, fmt.Errorf("reading lists: %w", err)
	}
	lists := map[string]policy.List{}
	if err := strictjson.Unmarshal(data, &lists); err != nil {
		return nil, &exitError{code: codeUsage, err: fmt.Errorf("%s:%w", file, err), hint: `a file of lists is like {"docs-sites": {"members": ["docs.python.org", "*.example.org"]}}`}
	}
	return lists, nil
}

func compileShipped(name string) (*constitution.Compiled, error) {
	text, lists, err := constitution.Shipped(name)
	if err != nil {
		return nil, err
	}
	return constitution.Compile(constitution.Source{Name: name, Text: text}, constitution.Options{Granting: true, Lists: lists})
}

func policyKey(home string) ([]ed25519.PublicKey, error) {
	key, err := keychain.LoadOrCreate(daemon.PolicyKey(home))
	if err != nil {
		return nil, err
	}
	return []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}, nil
}

func view(c *constitution.Compiled, bundle string, took time.Duration) compiled {
	v := compiled{Bundle: bundle, Findings: c.Findings, Took: took.Round(10 * time.Microsecond).String()}
	if v.Findings == nil {
		v.Findings = []constitution.Finding{}
	}
	for _, cl := range c.Clauses {
		line := clauseLine{ID: cl.ID, Line: cl.Line, Status: "advice", Text: cl.Text}
		if cl.Modality != policy.Advice {
			line.Status, line.English = "enforced", policy.English(cl)
		}
		v.Clauses = append(v.Clauses, line)
	}
	return v
}

func compiledText(v compiled) string {
	var b strings.Builder
	last := ""
	for _, c := range v.Clauses {
		if c.ID != last {
			fmt.Fprintf(&b, "%-4s line %-3d %-8s %s\n", c.ID, c.Line, c.Status, c.Text)
		}
		last = c.ID
		if c.English != "" {
			fmt.Fprintf(&b, "%23s= %s\n", "", c.English)
		}
	}
	if !slices.ContainsFunc(v.Clauses, func(c clauseLine) bool { return c.English != "" }) {
		b.WriteString("warning: nothing here is enforced, so everything is denied\n")
	}
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "%s: line %d: %s\n", f.Severity, f.Line, f.Message)
	}
	fmt.Fprintf(&b, "compiled in %s\n", v.Took)
	return b.String()
}
