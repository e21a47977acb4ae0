package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/config"
	"ringfence/internal/constitution"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// An inForce is the policy of a session and where it came from. Sessions share it,
// so it does not change.
type inForce struct {
	policy       *policy.Policy
	annotations  map[string]*policy.Annotation
	constitution string // SHA-256 of the English of the granting layer
	source       string
	layers       []string
	notes        []string
	led          map[string]led             // the places that it names, by name
	clauses      map[string][]policy.Clause // that it was made of, by layer
}

// A led is where a place led when the policy was bound.
type led struct {
	real string
	sure bool // no agent can have made a link on the way
}

// still reports whether the places that in names lead where they did.
func (in inForce) still(v resolve.View) bool {
	for p, was := range in.led {
		if real, sure := v.Leads(p); (led{real, sure}) != was {
			return false
		}
	}
	return true
}

// A policySource is where policies are looked for.
type policySource struct {
	home, user string          // ours, and the person's, absolute and real
	layers     config.Policies //
	unsigned   bool            // accept bundles that nobody signed: for looking, never for enforcing
	read       readings        // takes in what load reads, if not nil
}

// load loads the policy in dir, or the default constitution if dir is "", under
// the layers of the home. Bedrock is always there.
func (p policySource) load(dir, workspace string) (inForce, error) {
	in := inForce{layers: []string{"bedrock"}, led: map[string]led{}, clauses: map[string][]policy.Clause{}}
	bind := policy.Binding{Workspace: workspace, Home: p.user, Links: func(path string) (string, bool) {
		real, sure := p.view(workspace).Leads(path)
		in.led[path] = led{real, sure}
		return real, sure
	}}
	trusted, err := p.trusted()
	if err != nil {
		return inForce{}, err
	}
	if in.annotations, err = policy.Shipped(); err != nil {
		return inForce{}, err
	}
	if err := p.ownAnnotations(in.annotations); err != nil {
		return inForce{}, err
	}
	var lower []policy.Layer
	for _, l := range []struct{ name, dir string }{
		{"organisation", p.layers.Organisation},
		{"user", p.layers.User},
	} {
		if l.dir == "" {
			continue
		}
		_, b, err := policy.LoadBundle(p.open(l.dir), policy.Options{Trusted: trusted, Binding: bind})
		if err != nil {
			return inForce{}, fmt.Errorf("layer %s: %w", l.name, Unbundled(l.dir, err))
		}
		layer := b.Layer
		layer.Name, in.clauses[l.name] = l.name, b.Clauses
		lower = append(lower, layer)
		in.layers = append(in.layers, l.name)
	}
	if dir == "" {
		err := in.loadDefault(lower, bind)
		return in, err
	}
	pol, b, err := policy.LoadBundle(p.open(dir), policy.Options{
		Trusted: trusted, AllowUnsigned: p.unsigned, Binding: bind, Layers: lower,
	})
	if err != nil {
		return inForce{}, Unbundled(dir, err)
	}
	maps.Copy(in.annotations, b.Annotations)
	in.clauses[""] = b.Clauses
	in.policy, in.constitution, in.source = pol, b.Manifest.Constitution, dir
	in.layers = append(in.layers, "constitution")
	in.tellLinks()
	return in, nil
}

// view is what places are looked up with when a policy is bound.
func (p policySource) view(workspace string) resolve.View {
	return resolve.View{Workspace: workspace, Home: p.user}
}

// maxLinks bounds of how many links a session is told.
const maxLinks = 20

func (in *inForce) tellLinks() {
	links := in.policy.Links()
	for _, l := range links[:min(len(links), maxLinks)] {
		in.notes = append(in.notes, l.String())
	}
	if left := len(links) - maxLinks; left > 0 {
		in.notes = append(in.notes, "the policy names "+display.Count(left, "more place that is a link", "more places that are links")+"; `ringfence constitution check` lists them")
	}
}

// loadDefault compiles the constitution that applies when none is named.
func (in *inForce) loadDefault(lower []policy.Layer, bind policy.Binding) error {
	const name = "default"
	text, lists, err := constitution.Shipped(name)
	if err != nil {
		return err
	}
	c, err := constitution.Compile(constitution.Source{Name: name, Text: text}, constitution.Options{Granting: true, Lists: lists, NoScenarios: true})
	if err != nil {
		return fmt.Errorf("compiling the default constitution: %w", err)
	}
	sum := sha256.Sum256(text)
	in.constitution, in.source = hex.EncodeToString(sum[:]), "built in: default"
	in.layers, in.clauses[""] = append(in.layers, "constitution"), c.Clauses
	in.policy, err = policy.Load(append([]policy.Layer{{Text: c.Cedar, Lists: c.Lists}}, lower...), bind)
	if err == nil {
		in.tellLinks()
	}
	return err
}

// trusted are the keys whose bundles are accepted: that of this home.
func (p policySource) trusted() ([]ed25519.PublicKey, error) {
	key, err := keychain.LoadOrCreate(PolicyKey(p.home))
	if err != nil {
		return nil, err
	}
	return []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}, nil
}

// PolicyKey is the private key that signs the bundles compiled in a home.
func PolicyKey(home string) string { return filepath.Join(paths.Keys(home), "policy.key") }

// Lists is the file that keeps which lists of servers a home has used.
func Lists(home string) string { return filepath.Join(home, "lists.json") }

// Annotations is the folder of annotations that a person has reviewed; they add
// to the shipped ones and replace those of the same name.
func Annotations(home string) string { return filepath.Join(home, "annotations") }

func (p policySource) ownAnnotations(known map[string]*policy.Annotation) error {
	files, err := p.ownFiles()
	if err != nil {
		return err
	}
	for _, name := range names(files) {
		a, err := policy.ParseAnnotation(filepath.Join(Annotations(p.home), name), files[name])
		if err != nil {
			return err
		}
		known[a.Name] = a
	}
	return nil
}

// ownFiles are the annotations that a person has reviewed, by name of their file.
func (p policySource) ownFiles() (map[string][]byte, error) {
	dir := p.open(Annotations(p.home))
	found, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, fmt.Errorf("finding annotations: %w", err)
	}
	files := map[string][]byte{}
	for _, name := range found {
		if files[name], err = fs.ReadFile(dir, name); err != nil {
			return nil, fmt.Errorf("reading annotations: %w", err)
		}
	}
	return files, nil
}

// monitor returns the counters of p, rebuilt from the record; nil if p limits
// nothing.
func (e *Engine) monitor(ctx context.Context, p *policy.Policy) (*policy.Monitors, error) {
	limits := p.Limits()
	if len(limits) == 0 {
		return nil, nil
	}
	e.mu.Lock()
	m := e.monitors[p.Hash()]
	e.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m = policy.NewMonitors(limits)
	if err := e.replay(ctx, p.Hash(), m); err != nil {
		return nil, fmt.Errorf("counting what was allowed before: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if first := e.monitors[p.Hash()]; first != nil {
		return first, nil
	}
	e.monitors[p.Hash()] = m
	return m, nil
}

// replay counts in m what the record says was allowed under the policy hash.
func (e *Engine) replay(ctx context.Context, hash string, m *policy.Monitors) error {
	principals := map[string]string{}
	return e.ledger.Entries(ctx, ledger.Query{Types: []string{entryStart, gate.EntryDecision}}, func(r ledger.Record) error {
		switch r.Type {
		case entryStart:
			var s startEntry
			if err := json.Unmarshal(r.Body, &s); err != nil {
				return fmt.Errorf("reading entry %d: %w", r.Index, err)
			}
			principals[r.Session] = s.Principal
		case gate.EntryDecision:
			var d struct {
				Verdict act.Verdict `json:"verdict"`
				Counted []string    `json:"counted"`
				Policy  string      `json:"policy"`
			}
			if err := json.Unmarshal(r.Body, &d); err != nil {
				return fmt.Errorf("reading entry %d: %w", r.Index, err)
			}
			if d.Verdict == act.Allow && d.Policy == hash {
				for _, c := range d.Counted {
					m.Replay(c, principals[r.Session], r.Session, r.Time)
				}
			}
		}
		return nil
	})
}

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// launchHash identifies what is started as a server, for approvals.
func launchHash(in api.ServerInfo) string {
	h := sha256.New()
	for _, a := range slices.Concat([]string{in.Dir, in.Launch}, in.Program, in.Argv) {
		h.Write(fmt.Appendf(nil, "%d:%s,", len(a), a))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// canonicalSum is the hash of arguments whatever the order of their keys; of
// those that have no canonical form it is the hash of the bytes.
func canonicalSum(args []byte) [32]byte {
	if c, err := strictjson.Canonical(args); err == nil {
		args = c
	}
	return sha256.Sum256(args)
}

// boxReport is what the record says of a box: the launcher's report, or that
// there is none.
func boxReport(report json.RawMessage) json.RawMessage {
	if len(report) == 0 {
		return json.RawMessage(`"none"`)
	}
	return report
}

func boxName(report json.RawMessage) string {
	var r struct {
		Tier string `json:"tier"`
	}
	if string(report) == api.BoxFollows {
		return "follows"
	}
	if len(report) == 0 || json.Unmarshal(report, &r) != nil || r.Tier == "" {
		return "none"
	}
	return r.Tier
}

// KnownAnnotations are those that a session of this home can use, by name: shipped
// ones, and those that a person has reviewed.
func KnownAnnotations(home string) (map[string]*policy.Annotation, error) {
	known, err := policy.Shipped()
	if err != nil {
		return nil, err
	}
	return known, policySource{home: home}.ownAnnotations(known)
}

// annotationOf chooses by the name the person gave, else by the package in the
// server's argv, never by what the server says of itself.
func annotationOf(in api.ServerInfo, known map[string]*policy.Annotation) (*policy.Annotation, error) {
	if in.Annotations != "" {
		a := known[in.Annotations]
		if a == nil {
			hint := "known are " + strings.Join(names(known), ", ")
			if near := strictjson.Nearest(in.Annotations, names(known)); near != "" {
				hint = "did you mean " + near + "?"
			}
			return nil, api.Errorf(api.CodeBadRequest, "server %s names annotations %q, which do not exist; %s", in.Name, in.Annotations, hint)
		}
		return a, nil
	}
	return known[AnnotationsOf(in.Argv, known)], nil
}

// AnnotationsOf returns the name of those that are chosen for a server that is started
// as argv, "" if none are.
func AnnotationsOf(argv []string, known map[string]*policy.Annotation) string {
	for _, name := range names(known) {
		for _, pkg := range known[name].Packages {
			if runsPackage(argv, pkg) {
				return name
			}
		}
	}
	return ""
}
