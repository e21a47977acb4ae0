package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/act/linediff"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
	"ringfence/internal/constitution"
	"ringfence/internal/daemon/api"
	"ringfence/internal/policy"
	"ringfence/internal/session"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
)

// "Always" is no answer to a question: it is a clause that is proposed for the constitution
// by which it was asked. It stands in a file of its own, and nothing heeds it, until a person
// accepts it; then the constitution gets it, is compiled, and its scenarios are run.

// A proposal is a clause that is proposed.
type proposal struct {
	ID       string       `json:"id"` // of the question
	Made     time.Time    `json:"made"`
	Session  string       `json:"session"`
	Agent    string       `json:"agent"`
	Tool     string       `json:"tool,omitempty"`
	Effects  []act.Effect `json:"effects"` // that were asked for
	Scope    string       `json:"scope"`   // that the person chose
	Sentence string       `json:"sentence"`
	Policy   string       `json:"policy"` // the bundle, absolute
}

// maxProposals bounds those that are kept.
const maxProposals = 256

var errNoClause = errors.New("no clause says that: choose another scope, or write one yourself")

// clauseFor is the sentence that allows what q asks, within one of its scopes.
func clauseFor(q api.Question, scope int) (string, error) {
	if scope < 1 || scope > len(q.Scopes) {
		return "", fmt.Errorf("the question has %s", display.Count(len(q.Scopes), "scope", "scopes"))
	}
	c := policy.Clause{Modality: policy.May}
	for _, e := range q.Effects {
		if !slices.Contains(c.Kinds, e.Kind) {
			c.Kinds = append(c.Kinds, e.Kind)
		}
	}
	switch s := q.Scopes[scope-1]; s.Form {
	case "exact":
		for _, e := range q.Effects {
			c.On = appendNewPattern(c.On, policy.Pattern{Type: e.Resource.Type, Exact: e.Resource.Text})
		}
	case "subtree":
		_, dir, ok := strings.Cut(s.Text, " anywhere beneath ")
		if !ok || s.Such != filepath.Join(dir, "deeper", "file") {
			return "", errNoClause
		}
		c.On = []policy.Pattern{{Type: act.Path, Beneath: dir}}
	case "domain":
		for _, e := range q.Effects {
			u, err := weburl.Parse(e.Resource.Text)
			if err != nil || e.Resource.Type != act.URL {
				return "", errNoClause
			}
			c.On = appendNewPattern(c.On, policy.Pattern{Type: act.URL, Site: u.Host.WithPort(u.Port)})
		}
	case "tool":
		c.Tools = []string{q.Tool}
	default:
		return "", errNoClause
	}
	return policy.English(c), nil
}

func appendNewPattern(all []policy.Pattern, p policy.Pattern) []policy.Pattern {
	if slices.Contains(all, p) {
		return all
	}
	return append(all, p)
}

// propose writes down the clause that allows what q asks, if the constitution with it does.
func propose(q api.Question, scope int, bundle string) (proposal, error) {
	p := proposal{ID: q.ID, Made: time.Now().UTC().Truncate(time.Second), Session: q.Session, Agent: q.Principal, Tool: q.Tool, Effects: q.Effects, Policy: bundle}
	var err error
	if p.Sentence, err = clauseFor(q, scope); err != nil {
		return p, fmt.Errorf("proposing a clause: %w", err)
	}
	p.Scope = q.Scopes[scope-1].Text
	if p.Policy == "" {
		if p.Policy, err = policyOf(q.Session); err != nil {
			return p, err
		}
	}
	if p.Policy, err = filepath.Abs(p.Policy); err != nil {
		return p, err
	}
	if _, err := amend(p); err != nil {
		return p, err
	}
	dir, err := proposalsDir()
	if err != nil {
		return p, err
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) >= maxProposals {
		return p, errors.Join(err, &exitError{code: codeFailed, err: errors.New("too many clauses are proposed"), hint: "\"ringfence approvals proposals drop ID\" forgets one"})
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return p, err
	}
	return p, atomicfile.Write(filepath.Join(dir, p.ID+".json"), append(text, '\n'), 0o600)
}

// policyOf is the bundle by which a session is judged, as its run says.
func policyOf(id string) (string, error) {
	dir, err := runsDir()
	if err != nil {
		return "", err
	}
	all, err := session.Runs(dir)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if r.ID == id && r.Policy != "" {
			if filepath.IsAbs(r.Policy) {
				return r.Policy, nil
			}
			return filepath.Join(r.Dir, r.Policy), nil
		}
	}
	return "", &exitError{code: codeFailed, err: fmt.Errorf("it is not known which policy session %s has, or it is one that comes with ringfence", id), hint: "name the bundle of your own that it has: --policy DIR"}
}

func proposalsDir() (string, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return "", err
	}
	dir := paths.Proposals(home)
	return dir, os.MkdirAll(dir, 0o700)
}

// An amended constitution is one with a clause that was proposed.
type amended struct {
	was, is  string
	compiled *constitution.Compiled
}

// diff is the change, for people.
func (a amended) diff() string { return linediff.Hunks(a.was, a.is, 3) }

// amend is the constitution of a bundle with the clause of p: compiled, with its scenarios
// run, and so that what was asked for is allowed without asking. Nothing is written.
func amend(p proposal) (amended, error) {
	root := os.DirFS(p.Policy)
	text, err := fs.ReadFile(root, policy.FileConstitution)
	if err != nil {
		return amended{}, fmt.Errorf("reading the constitution of %s: %w", p.Policy, err)
	}
	lists := map[string]policy.List{}
	switch data, err := fs.ReadFile(root, policy.FileLists); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return amended{}, err
	default:
		if err := strictjson.Unmarshal(data, &lists); err != nil {
			return amended{}, fmt.Errorf("reading the lists of %s: %w", p.Policy, err)
		}
	}
	a := amended{was: string(text)}
	a.is = a.was
	if !strings.HasSuffix(a.is, "\n") {
		a.is += "\n"
	}
	a.is += "\n- " + p.Sentence + "\n"
	c, err := constitution.Compile(constitution.Source{Name: policy.FileConstitution, Text: []byte(a.is)}, constitution.Options{Granting: true, Lists: lists})
	if err == nil {
		err = linked(c)
	}
	if err != nil {
		return amended{}, fmt.Errorf("the constitution with the clause %q: %w", p.Sentence, err)
	}
	a.compiled = c
	return a, a.allows(p)
}

// allows says why what was asked for is not allowed by a: a clause that says never, or that a
// person must be asked, is not lifted by another that allows.
func (a amended) allows(p proposal) error {
	loaded, err := policy.Load([]policy.Layer{{Text: a.compiled.Cedar, Lists: a.compiled.Lists}}, bindingOf(p))
	if err != nil {
		return err
	}
	d := loaded.Decide(policy.Query{Principal: p.Agent, Tool: p.Tool, Effects: p.Effects, Now: time.Now(), Counts: func(string) int64 { return 0 }})
	if d.Verdict == act.Allow {
		return nil
	}
	return &exitError{
		code: codeDenied, err: fmt.Errorf("the clause %q would not change the answer: %s says otherwise, whatever else is allowed", p.Sentence, strings.Join(d.Rules, ", ")),
		hint: "what is never allowed, or must be asked, stays so until you change that clause yourself",
	}
}

func bindingOf(p proposal) policy.Binding {
	b := policy.Binding{}
	if user, err := paths.UserHome(); err == nil {
		b.Home = user
	}
	if dir, err := runsDir(); err == nil {
		if all, err := session.Runs(dir); err == nil {
			for _, r := range all {
				if r.ID == p.Session {
					b.Workspace = r.Workspace
				}
			}
		}
	}
	return b
}

var proposalName = regexp.MustCompile(`^[0-9a-f]{8}$`)

// aProposal is the one of that id.
func aProposal(id string) (p proposal, file string, err error) {
	dir, err := proposalsDir()
	if err != nil {
		return p, "", err
	}
	file = filepath.Join(dir, id+".json")
	if !proposalName.MatchString(id) {
		return p, "", &exitError{code: codeUsage, err: fmt.Errorf("%q is no id of a proposal", id), hint: "\"ringfence approvals proposals list\" names them"}
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, "", &exitError{code: codeFailed, err: fmt.Errorf("there is no proposal %s", id), hint: "\"ringfence approvals proposals list\" names them"}
	}
	if err == nil {
		err = strictjson.Unmarshal(text, &p)
	}
	if err != nil {
		return p, "", fmt.Errorf("reading proposal %s: %w", id, err)
	}
	return p, file, nil
}

// proposes is "always" on a page.
func proposes(_ context.Context, q api.Question, scope int) (string, error) {
	p, err := propose(q, scope, "")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Allowed once, and proposed: %q. \"ringfence approvals proposals\" has it.", p.Sentence), nil
}
