package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon"
	"ringfence/internal/mediator"
	"ringfence/internal/policy"
	"ringfence/internal/policy/draft"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
)

// annotateFlags are the flags of "ringfence annotate-tools".
type annotateFlags struct {
	servers, workspace, out string
	force, accept, yes      bool
}

// newAnnotate is "ringfence annotate-tools".
func newAnnotate(s *streams) *cobra.Command {
	var f annotateFlags
	c := &cobra.Command{
		Use:   "annotate-tools SERVER",
		Short: "Draft what the tools of a server do, and accept the draft",
		Long: "Start one server of FILE, as \"ringfence mcp\" would, read what tools it lists, and\n" +
			"draft by rule what their arguments name and do. The rules know names and schemas,\n" +
			"which are the server's own words, and say what they could not tell. A draft decides\n" +
			"nothing. Correct it, then accept it with --accept; what is accepted turns calls into\n" +
			"effects that the policy judges. The definitions themselves are approved apart from\n" +
			"that, with \"ringfence tools review\".",
		Example: "  ringfence annotate-tools --servers servers.json notes\n" +
			"  ringfence annotate-tools --accept notes",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeDenied, "the draft was not accepted"}),
		RunE: func(c *cobra.Command, args []string) error {
			if f.accept {
				return runAccept(s, f, args[0])
			}
			return runDraft(c.Context(), s, f, args[0])
		},
	}
	c.Flags().StringVar(&f.servers, "servers", "", "`FILE` that lists the servers")
	c.Flags().StringVarP(&f.workspace, "workspace", "w", "", "`DIR` that the server is started in (default: the working directory)")
	c.Flags().StringVarP(&f.out, "output", "o", "", "the draft, a `FILE` (default: annotations/SERVER.json.draft in the home)")
	c.Flags().BoolVar(&f.force, "force", false, "replace what is there")
	c.Flags().BoolVar(&f.accept, "accept", false, "show the draft, and use it from now on")
	c.Flags().BoolVar(&f.yes, "yes", false, "with --accept: do not ask")
	return c
}

// A drafted is the result of drafting.
type drafted struct {
	Server     string          `json:"server"`
	File       string          `json:"file"`
	Box        string          `json:"box"` // what confined the server while it was asked
	Annotation json.RawMessage `json:"annotation"`
	Doubts     []draft.Doubt   `json:"doubts"`
	Next       []string        `json:"next"`
}

func runDraft(ctx context.Context, s *streams, f annotateFlags, name string) error {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := ownList(&f.servers); err != nil {
		return err
	}
	server, err := findServer(f.servers, name, log)
	if err != nil {
		return err
	}
	boxes, err := newBoxes(s, f.workspace, "")
	if err != nil {
		return err
	}
	if boxes, err = (mcpFlags{servers: f.servers}).among(boxes, []mediator.Server{server}); err != nil {
		return err
	}
	// There is no session, and nothing that the server does is done for an agent.
	boxes.Record = func(context.Context, string, sandbox.Report) error { return nil }
	argv, err := boxes.Argv(server)
	if err != nil {
		return err
	}
	taken, err := takenBy(name, argv)
	if err == nil && !f.force {
		err = taken
	}
	if err != nil {
		return err
	}
	file, err := draftFile(f.out, name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(file); err == nil && !f.force {
		return &exitError{code: codeFailed, err: fmt.Errorf("there is a draft in %s", file), hint: "--force replaces it"}
	}
	list, report, err := lookAt(ctx, &personSession{s: s, verb: "annotate"}, boxes, log, server)
	if err != nil {
		return err
	}
	a, doubts, err := draft.Draft(name, list)
	if err != nil {
		return err
	}
	if taken == nil && draft.PackageOf(argv) != "" {
		a.Packages = []string{draft.PackageOf(argv)}
	}
	if doubts == nil {
		doubts = []draft.Doubt{}
	}
	if err := writeDraft(file, a, doubts, f.force); err != nil {
		return err
	}
	d := drafted{name, file, report, draft.Format(a), doubts, nextSteps(f, server, a)}
	return s.value(d, func() string {
		return annotationText(a, doubts) + fmt.Sprintf("\nDraft of %s, %s, in %s\n(read in a box: %s)\n\nIt decides nothing yet. Next:\n  - %s\n",
			count(len(a.Tools), "tool"), count(len(doubts), "doubt"), file, shortBox(report), strings.Join(d.Next, "\n  - "))
	})
}

// findServer returns the server called name of a file of servers.
func findServer(file, name string, log *slog.Logger) (mediator.Server, error) {
	servers, err := agreedServers(file, log)
	if err != nil {
		return mediator.Server{}, err
	}
	var names []string
	for _, server := range servers {
		if server.Name == name && server.Ringfence.Builtin != "" {
			return server, &exitError{code: codeUsage, err: fmt.Errorf("server %s is built in, and so are its annotations", name)}
		}
		if server.Name == name {
			return server, nil
		}
		names = append(names, server.Name)
	}
	e := &exitError{code: codeUsage, err: fmt.Errorf("%s has no server %q", file, name), hint: "one of: " + strings.Join(names, ", ")}
	if near := nearest(name, names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return mediator.Server{}, e
}

// takenBy returns an error if annotations shipped with us have that name, so that
// others would take their place for every server, or are chosen for argv.
func takenBy(name string, argv []string) (taken, err error) {
	shipped, err := policy.Shipped()
	if err != nil {
		return nil, err
	}
	if shipped[name] != nil {
		return &exitError{
			code: codeFailed, err: fmt.Errorf("annotations named %s are shipped with ringfence, and others of that name would replace them for every server", name),
			hint: "give the server another name, or use --force",
		}, nil
	}
	for of, a := range shipped {
		for _, p := range a.Packages {
			if selects(p, argv) {
				return &exitError{
					code: codeFailed, err: fmt.Errorf("server %s runs %s, whose annotations are shipped with ringfence as %s", name, p, of),
					hint: "they are used already; --force drafts others",
				}, nil
			}
		}
	}
	return nil, nil
}

// selects reports whether the engine chooses annotations of the package pkg for
// argv: it is a word of it, with or without a version, the folder of one in
// node_modules, or the name of the program.
func selects(pkg string, argv []string) bool {
	for i, word := range argv {
		if word == pkg || strings.HasPrefix(word, pkg+"@") || strings.Contains(word, "/node_modules/"+pkg+"/") ||
			i == 0 && filepath.Base(word) == pkg {
			return true
		}
	}
	return false
}

// draftFile is where the draft for a server is kept: in the file out, if one is
// named, else beside the annotations of the home.
func draftFile(out, name string) (string, error) {
	if out != "" {
		return filepath.Abs(out)
	}
	accepted, err := acceptedFile(name)
	return accepted + ".draft", err
}

// acceptedFile is where the annotation of a server is used from.
func acceptedFile(name string) (string, error) {
	if err := mediator.CheckName(name); err != nil {
		return "", &exitError{code: codeUsage, err: err}
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return "", err
	}
	dir := daemon.Annotations(home)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the folder of annotations: %w", err)
	}
	return filepath.Join(dir, name+".json"), nil
}

// doubtsFile is where the doubts about a draft are kept.
func doubtsFile(file string) string { return strings.TrimSuffix(file, ".draft") + ".doubts" }

func writeDraft(file string, a policy.Annotation, doubts []draft.Doubt, force bool) error {
	list, err := json.MarshalIndent(doubts, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the doubts: %w", err)
	}
	write := atomicfile.CreateNew
	if force {
		write = atomicfile.Write
	}
	if err := write(file, draft.Format(a), 0o600); err != nil {
		return fmt.Errorf("writing the draft: %w", err)
	}
	return atomicfile.Write(doubtsFile(file), append(list, '\n'), 0o600)
}

// nextSteps says what a person does with a draft.
func nextSteps(f annotateFlags, server mediator.Server, a policy.Annotation) []string {
	accept := "ringfence annotate-tools --accept " + server.Name
	if f.out != "" {
		accept += " -o " + f.out
	}
	use := fmt.Sprintf(`for ringfence to use it, add to server %s in %s: "ringfence": {"annotations": %q}`, server.Name, f.servers, server.Name)
	switch {
	case server.Ringfence.Annotations == server.Name:
		use = fmt.Sprintf("server %s in %s names it, so it will be used", server.Name, f.servers)
	case server.Ringfence.Annotations == "" && len(a.Packages) > 0:
		use = fmt.Sprintf("it will be used for every server that runs %s", a.Packages[0])
	}
	return []string{
		"correct it: what \"?\" marks was not clear, and the rest follows names that the server chose",
		accept,
		use,
		"ringfence tools review " + server.Name + ", once an agent has connected: the definitions are approved there",
	}
}

func runAccept(s *streams, f annotateFlags, name string) error {
	accepted, err := acceptedFile(name)
	if err != nil {
		return err
	}
	file, err := draftFile(f.out, name)
	if err != nil {
		return err
	}
	a, data, doubts, err := readDraft(file, name)
	if err != nil {
		return err
	}
	if taken, err := takenBy(name, nil); err != nil || taken != nil && !f.force {
		return errors.Join(err, taken)
	}
	if !s.json {
		fmt.Fprintf(s.out, "%s\n", annotationText(*a, doubts))
	}
	if err := confirm(s, f, name, len(doubts)); err != nil {
		return err
	}
	// What was shown is what is used, whatever the file holds by now.
	write := atomicfile.CreateNew
	if f.force {
		write = atomicfile.Write
	}
	if err := write(accepted, data, 0o600); errors.Is(err, fs.ErrExist) {
		return &exitError{code: codeFailed, err: fmt.Errorf("server %s has annotations in %s", name, accepted), hint: "--force replaces them"}
	} else if err != nil {
		return fmt.Errorf("accepting the draft: %w", err)
	}
	for _, done := range []string{file, doubtsFile(file)} {
		if err := os.Remove(done); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the draft: %w", err)
		}
	}
	result := struct {
		Server string `json:"server"`
		File   string `json:"file"`
	}{name, accepted}
	return s.value(result, func() string {
		return fmt.Sprintf("Accepted: %s\nSessions that start from now on use it. Next: ringfence tools review %s\n", accepted, name)
	})
}

// readDraft reads a draft, which must be for that server, and its doubts.
func readDraft(file, name string) (*policy.Annotation, []byte, []draft.Doubt, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, &exitError{
			code: codeFailed, err: fmt.Errorf("there is no draft in %s", file),
			hint: fmt.Sprintf("make one with \"ringfence annotate-tools --servers FILE %s\"", name),
		}
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reading the draft: %w", err)
	}
	a, err := policy.ParseAnnotation(file, data)
	if err != nil {
		return nil, nil, nil, err
	}
	if a.Name != name {
		return nil, nil, nil, fmt.Errorf("%s is named %q, and not %q as the server", file, a.Name, name)
	}
	var doubts []draft.Doubt
	list, err := os.ReadFile(doubtsFile(file))
	if err == nil {
		err = strictjson.Unmarshal(list, &doubts)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf("reading the doubts about the draft: %w", err)
	}
	return a, data, doubts, nil
}

// confirm returns nil if the person wants the draft to be used.
func confirm(s *streams, f annotateFlags, name string, doubts int) error {
	if f.yes {
		return nil
	}
	no := &exitError{code: codeDenied, err: errors.New("the draft was not accepted"), hint: "it stays as it is; --yes accepts without asking"}
	if !isTerminal(s.in) {
		return no
	}
	fmt.Fprintf(s.err, "Use this for server %s? It had %s when it was drafted. Type yes: ", name, count(doubts, "doubt"))
	answer, err := bufio.NewReader(io.LimitReader(s.in, 64)).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return no
	}
	return nil
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
