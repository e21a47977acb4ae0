package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/external"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/paths"
)

// newMCPImport is "ringfence mcp import".
func newMCPImport(s *streams) *cobra.Command {
	var f addFlags
	var from string
	c := &cobra.Command{
		Use:   "import PROGRAM [SERVER…]",
		Short: "Take over the MCP servers of another program",
		Long: "Read the lists of MCP servers of " + strings.Join(external.Names(), ", ") + ", the person's and\n" +
			"the project's. Each server is looked at as by \"ringfence mcp add\", and a person\n" +
			"agrees to all of them once. The files of the program stay as they are.",
		Example:     "  ringfence mcp import claude\n  ringfence mcp import codex docs --yes",
		Args:        cobra.MinimumNArgs(1),
		ValidArgs:   external.Names(),
		Annotations: exits(status{codeFailed, "there was nothing to add, or not everything could be"}, status{codeDenied, "nothing was added"}),
		RunE: func(c *cobra.Command, args []string) error {
			return runImport(c.Context(), s, f, from, args[0], args[1:])
		},
	}
	f.bind(c)
	c.Flags().StringVar(&from, "from", "", "read only this `FILE` of the program")
	return c
}

// An imported is what became of the servers of a program.
type imported struct {
	File    string       `json:"file"`
	Added   []*candidate `json:"added"`
	Skipped []skipped    `json:"skipped"`
}

type skipped struct {
	Name string `json:"name"`
	From string `json:"from"`
	Why  string `json:"why"`
}

// A foundEntry is an entry and where it is from.
type foundEntry struct {
	external.Entry
	from string
}

func runImport(ctx context.Context, s *streams, f addFlags, from, program string, names []string) error {
	found, err := findEntries(program, from, f.workspace)
	if err != nil {
		return err
	}
	file, err := f.list()
	if err != nil {
		return err
	}
	x, err := newExaminer(s, file, f.workspace, f.policy)
	if err != nil {
		return err
	}
	if found, err = chosen(found, names); err != nil {
		return err
	}
	out := imported{File: file, Added: []*candidate{}, Skipped: []skipped{}}
	for _, e := range found {
		c, why := x.consider(ctx, e, f.force)
		if why != nil {
			out.Skipped = append(out.Skipped, skipped{e.Name, e.from, why.Error()})
			continue
		}
		out.Added = append(out.Added, c)
	}
	if !s.json {
		fmt.Fprint(s.out, printable(importText(out)))
	}
	if len(out.Added) == 0 {
		return errors.Join(s.json1(out), &exitError{code: codeFailed, err: errors.New("there is no server to add")})
	}
	if err := x.agree(fmt.Sprintf("Add %s to %s?", count(len(out.Added), "server"), file), "nothing was added", f.yes); err != nil {
		return err
	}
	if err := x.add(ctx, out.Added, f.force); err != nil {
		return err
	}
	if err := s.value(out, func() string { return addedText(file, out.Added) }); err != nil {
		return err
	}
	if len(out.Skipped) > 0 {
		return &exitError{code: codeFailed}
	}
	return nil
}

// json1 prints v if JSON is wanted.
func (s *streams) json1(v any) error {
	if s.json {
		return s.line(v)
	}
	return nil
}

// findEntries reads the lists of a program.
func findEntries(program, from, workspace string) ([]foundEntry, error) {
	home, err := paths.UserHome()
	if err != nil {
		return nil, err
	}
	config, ok := paths.Variable("XDG_CONFIG_HOME")
	if !ok || !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	project, err := filepath.Abs(workspace)
	if err != nil {
		return nil, fmt.Errorf("finding the project: %w", err)
	}
	places := external.Places(program, home, config, project)
	if places == nil {
		e := &exitError{code: codeUsage, err: fmt.Errorf("no program %q is known", program), hint: "one of: " + strings.Join(external.Names(), ", ")}
		if near := nearest(program, external.Names()); near != "" {
			e.hint = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, e
	}
	if from != "" {
		if from, err = filepath.Abs(from); err != nil {
			return nil, fmt.Errorf("finding the list: %w", err)
		}
		places = placesFor(places, from)
	}
	var found []foundEntry
	var looked []string
	for _, p := range places {
		data, err := os.ReadFile(p.File)
		if errors.Is(err, fs.ErrNotExist) && from == "" {
			looked = append(looked, p.File)
			continue
		}
		if err != nil {
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("reading the list of %s: %w", program, err)}
		}
		entries, err := p.Read(data, project)
		if err != nil {
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("%s:%w", p.File, err)}
		}
		for _, e := range entries {
			found = append(found, foundEntry{e, p.File})
		}
	}
	if len(found) == 0 {
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("%s has no MCP server", program), hint: "looked at " + strings.Join(append(looked, listOf(places)...), ", ")}
	}
	return found, nil
}

// placesFor reads file in the form of the place that is called so, or else of the first.
func placesFor(places []external.Place, file string) []external.Place {
	p := places[0]
	for _, other := range places {
		if filepath.Base(other.File) == filepath.Base(file) {
			p = other
			break
		}
	}
	p.File = file
	return []external.Place{p}
}

func listOf(places []external.Place) []string {
	var files []string
	for _, p := range places {
		if _, err := os.Lstat(p.File); err == nil {
			files = append(files, p.File)
		}
	}
	return files
}

// chosen are the entries that are named, all if none is. Of two of one name the first
// counts.
func chosen(found []foundEntry, names []string) ([]foundEntry, error) {
	var out []foundEntry
	for _, e := range found {
		if (len(names) == 0 || slices.Contains(names, e.Name)) && !slices.ContainsFunc(out, func(o foundEntry) bool { return o.Name == e.Name }) {
			out = append(out, e)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(out, func(o foundEntry) bool { return o.Name == n }) {
			var there []string
			for _, e := range found {
				there = append(there, e.Name)
			}
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("there is no server %q", n), hint: "there are " + strings.Join(there, ", ")}
		}
	}
	return out, nil
}

// consider looks at one entry, and says why it is left out.
func (x *examiner) consider(ctx context.Context, e foundEntry, replace bool) (*candidate, error) {
	if e.Problem != "" {
		return nil, errors.New(e.Problem)
	}
	if err := mediator.CheckName(e.Name); err != nil {
		return nil, err
	}
	if !replace && x.listed(e.Name) {
		return nil, errors.New("the list has a server of that name; --force replaces it")
	}
	c, err := x.examine(ctx, e.Name, e.Raw)
	if err != nil {
		return nil, err
	}
	c.From, c.Secrets = e.from, e.Secret
	return c, nil
}

// listed reports whether the list has a server called name.
func (x *examiner) listed(name string) bool {
	src, err := os.ReadFile(x.file)
	if err != nil {
		return false // there is none, or writing it will say why
	}
	_, err = mediator.AddServer(src, name, []byte("{}"), false)
	return errors.Is(err, mediator.ErrListed)
}

func importText(out imported) string {
	var b strings.Builder
	for _, c := range out.Added {
		fmt.Fprintf(&b, "%s\n", candidateText(c))
	}
	for _, k := range out.Skipped {
		fmt.Fprintf(&b, "%s is left out (from %s)\n  %s\n", k.Name, k.From, k.Why)
	}
	if len(out.Skipped) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}
