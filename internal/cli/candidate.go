package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon"
	"ringfence/internal/mediator"
	"ringfence/internal/policy"
	"ringfence/internal/policy/draft"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/paths"
)

// A candidate is a server that a person may add: what it is, what it offers, and what an
// agent would be allowed to do with it.
type candidate struct {
	Name        string          `json:"name"`
	From        string          `json:"from,omitempty"` // the file that it was found in
	Entry       json.RawMessage `json:"entry"`          // with the annotations that will be used
	Box         string          `json:"box,omitempty"`  // what confined it while it was asked
	Annotations string          `json:"annotations"`    // their name
	Drafted     bool            `json:"drafted"`        // by rule, just now
	Doubts      []draft.Doubt   `json:"doubts,omitempty"`
	Tools       []offered       `json:"tools"`
	Secrets     []string        `json:"secrets,omitempty"` // names of values that stand in the entry

	draft   policy.Annotation
	list    []byte
	program []string // what its program is known by
}

// An offered tool is one that a candidate lists.
type offered struct {
	Name    string      `json:"name"`
	Effects []act.Kind  `json:"effects"`
	Verdict act.Verdict `json:"verdict"` // of the policy, on ordinary examples of them
	Remarks []string    `json:"remarks,omitempty"`
}

// examiner looks at candidates.
type examiner struct {
	s         *streams
	file      string // the list that they would be added to
	policyDir string
	workspace string
	boxes     mediator.Boxes
	log       *slog.Logger
	judge     *daemon.Evaluator
	known     map[string]*policy.Annotation
	shipped   map[string]*policy.Annotation
}

func newExaminer(s *streams, file, workspace, policyDir string) (*examiner, error) {
	boxes, err := newBoxes(s, workspace, "")
	if err != nil {
		return nil, err
	}
	// There is no session, and nothing that the server does is done for an agent.
	boxes.Record = func(context.Context, string, sandbox.Report) error { return nil }
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	judge, err := daemon.NewEvaluator(home, policyDir, boxes.Workspace)
	if err != nil {
		return nil, &exitError{code: codeUsage, err: err}
	}
	known, err := daemon.KnownAnnotations(home)
	if err != nil {
		return nil, err
	}
	shipped, err := policy.Shipped()
	if err != nil {
		return nil, err
	}
	return &examiner{
		s: s, file: file, policyDir: policyDir, workspace: boxes.Workspace, boxes: boxes, judge: judge, known: known, shipped: shipped,
		log: slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, nil
}

// examine starts the server called name, whose entry is raw, and looks at what it offers.
func (x *examiner) examine(ctx context.Context, name string, raw []byte) (*candidate, error) {
	server, err := parseEntry(name, raw)
	if err == nil {
		err = checkEntry(name, raw)
	}
	if err != nil {
		return nil, err
	}
	c := &candidate{Name: name, Entry: raw}
	boxes := x.boxes.Among(x.file, []mediator.Server{server})
	c.list, c.Box, err = lookAt(ctx, &personSession{s: x.s, verb: "add", f: loginFlags{policy: x.policyDir}}, boxes, x.log, server)
	if err != nil {
		e := &exitError{code: codeFailed, err: err}
		if server.URL == "" && c.Box != "" {
			e.hint = "in its box it sees the workspace and what --path names; does its command work by itself?"
		}
		return nil, e
	}
	var argv []string
	if server.URL == "" {
		if argv, err = boxes.Argv(server); err != nil {
			return nil, err
		}
	}
	if c.program, err = boxes.Identity(server); err != nil {
		return nil, err
	}
	if err := x.annotate(c, server, argv); err != nil {
		return nil, err
	}
	return c, x.tools(c)
}

// parseEntry reads an entry as "ringfence mcp" would.
func parseEntry(name string, raw []byte) (mediator.Server, error) {
	list, err := mediator.AddServer(nil, name, raw, false)
	if err != nil {
		return mediator.Server{}, &exitError{code: codeUsage, err: err}
	}
	servers, _, err := mediator.ParseServers(list, paths.Variable)
	if err == nil && len(servers) != 1 {
		err = errors.New("1:1: it is disabled")
	}
	if err != nil {
		// Where it stands in the list that was made of it is of no use to anybody.
		_, text, _ := strings.Cut(err.Error(), ": ")
		return mediator.Server{}, &exitError{code: codeUsage, err: fmt.Errorf("server %s: %s", name, text)}
	}
	return servers[0], checkBuiltin(servers[0])
}

// annotate finds what says what the tools of c do, or drafts it.
func (x *examiner) annotate(c *candidate, server mediator.Server, argv []string) (err error) {
	c.Annotations = server.Ringfence.Annotations
	if c.Annotations == "" {
		c.Annotations = server.Ringfence.Builtin
	}
	if c.Annotations == "" {
		c.Annotations = daemon.AnnotationsOf(argv, x.known)
	}
	if c.Annotations == "" && x.known[c.Name] != nil && x.shipped[c.Name] == nil {
		c.Annotations = c.Name // reviewed for a server of this name before
		if c.Entry, err = withAnnotations(c.Entry, c.Name); err != nil {
			return err
		}
	}
	if a := x.known[c.Annotations]; a != nil {
		c.draft = *a
		return nil
	}
	if c.Annotations != "" {
		return &exitError{code: codeUsage, err: fmt.Errorf("server %s names annotations %q, which do not exist", c.Name, c.Annotations)}
	}
	if c.draft, c.Doubts, err = draft.Draft(c.Name, c.list); err != nil {
		return err
	}
	c.Annotations, c.Drafted = c.Name, true
	if x.known[c.Name] != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("there are annotations named %s, which are not of this server", c.Name), hint: "give the server another name"}
	}
	c.Entry, err = withAnnotations(c.Entry, c.Name)
	return err
}

// withAnnotations is an entry that names its annotations.
func withAnnotations(entry []byte, name string) ([]byte, error) {
	own, err := json.Marshal(map[string]string{"annotations": name})
	if err != nil {
		return nil, err
	}
	at, found, err := strictjson.Find(entry, "/ringfence")
	if err != nil {
		return nil, fmt.Errorf("reading the entry: %w", err)
	}
	edit := strictjson.Edit{Start: len(entry) - 1, End: len(entry) - 1, New: append([]byte(`,"ringfence":`), own...)}
	if found {
		edit = strictjson.Edit{Start: at.Start + 1, End: at.Start + 1, New: append(own[1:len(own)-1], ',')}
	}
	return strictjson.Splice(entry, []strictjson.Edit{edit})
}

// tools fills in what c offers.
func (x *examiner) tools(c *candidate) error {
	x.judge.Serve(c.Name, &c.draft)
	defs, err := strictjson.Values(c.list, "/tools/*")
	if err != nil {
		return fmt.Errorf("reading the tools of %s: %w", c.Name, err)
	}
	for _, def := range defs {
		at, ok, err := strictjson.Find(def.Raw, "/name")
		if err != nil || !ok {
			continue // the draft has said so
		}
		name, err := at.Text()
		if err != nil {
			continue
		}
		o := offered{Name: name, Effects: []act.Kind{}, Verdict: act.Deny}
		if t, ok := c.draft.Tools[name]; ok {
			o.Effects = kindsOf(t)
			o.Verdict = x.verdict(c, name, o.Effects)
		}
		o.Remarks = daemon.Remarks(name, def.Raw)
		c.Tools = append(c.Tools, o)
	}
	slices.SortFunc(c.Tools, func(a, b offered) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// kindsOf are the effects that a call of t can have, in order.
func kindsOf(t policy.ToolAnnotation) []act.Kind {
	kinds := map[act.Kind]bool{}
	note := func(ks []act.Kind) {
		for _, k := range ks {
			kinds[k] = true
		}
	}
	for _, a := range t.Args {
		note(a.Effects)
		for _, w := range a.When {
			note(w.Effects)
		}
	}
	for _, e := range t.Effects {
		note([]act.Kind{e.Kind})
	}
	if len(kinds) == 0 {
		kinds[act.Call] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// verdict is the strictest of the policy on an example of each effect.
func (x *examiner) verdict(c *candidate, tool string, kinds []act.Kind) act.Verdict {
	worst := act.Allow
	for _, k := range kinds {
		asked := map[string]any{"effect": k, "resource": x.example(c.Name, k)}
		if k == act.Call { // its annotation says what such a call counts as
			asked = map[string]any{"tool": c.Name + "." + tool}
		}
		worst = min(worst, x.eval(asked))
	}
	return worst
}

// eval is the verdict on one line of "policy eval". What cannot be told is a denial.
func (x *examiner) eval(asked map[string]any) act.Verdict {
	line, err := json.Marshal(asked)
	if err != nil {
		return act.Deny
	}
	r, err := x.judge.Eval(line)
	if err != nil {
		return act.Deny
	}
	return r.Verdict
}

// example is an ordinary resource of an effect.
func (x *examiner) example(server string, k act.Kind) string {
	switch k {
	case act.Resolve, act.Connect:
		return "example.com:443"
	case act.Fetch, act.Send:
		return "https://example.com/"
	case act.Install:
		return "npm:example@1.0.0"
	case act.GitRead, act.GitCommit, act.GitBranch, act.GitRewrite:
		return "repo:" + x.workspace
	case act.GitFetch, act.GitPush, act.GitForce:
		return "https://example.com/example.git#refs/heads/main"
	case act.Execute:
		return `["/usr/bin/example"]`
	case act.Message:
		return "someone@example.com"
	case act.UseSecret, act.Infer, act.Recall, act.Remember, act.Ask, act.Answer:
		return "example"
	case act.Call:
		return server + ".example"
	case act.Read, act.List, act.Stat, act.Create, act.Overwrite, act.Append, act.Delete, act.Move:
	}
	return x.workspace + "/example"
}
