package constitution

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// examples makes the cases of one clause: on both sides of every boundary that
// it draws.
type examples struct {
	clause *policy.Clause
	lists  map[string]policy.List
	limit  int
	seen   map[string]bool
	from   int
	out    []Scenario
}

// A sample is a resource near the boundary of a pattern.
type sample struct {
	what string
	text string
}

func (x *examples) make() {
	base := x.base()
	for _, k := range x.kinds() {
		for _, s := range x.samples(k) {
			x.add(base, s.what, k, s.text)
		}
	}
	x.otherKinds(base)
	x.otherCallers(base)
	x.otherTimes(base)
	x.conditions(base)
	for _, e := range x.clause.Except {
		x.exception(base, e)
	}
}

// base is a situation in which everything but the resource fits the clause.
func (x *examples) base() Scenario {
	c := x.clause
	s := Scenario{Clause: c.ID, Principal: "someone/agent", Now: scenarioTime}
	if len(c.Who) > 0 {
		s.Principal = c.Who[0]
		if !strings.Contains(s.Principal, "/") {
			s.Principal += "/agent"
		}
	}
	if len(c.Tools) > 0 {
		s.Tool = strings.Replace(c.Tools[0], "*", "something", 1)
	}
	satisfy(&s, c.When, -1)
	if c.Expires != nil && !s.Now.Before(*c.Expires) {
		s.Now = c.Expires.AddDate(0, 0, -1)
	}
	return s
}

// satisfy makes all of conditions hold in s but the one with the index fails.
func satisfy(s *Scenario, conditions []policy.Condition, fails int) {
	args := maps.Clone(s.Args)
	if args == nil {
		args = map[string]any{}
	}
	hours := false
	for i, w := range conditions {
		pointer, isArg := strings.CutPrefix(w.Fact, "arg:")
		label, _ := w.Value.(string)
		switch {
		case isArg && i != fails:
			args[pointer] = w.Value
		case isArg:
			args[pointer] = otherValue(w.Value)
		case w.Fact == policy.FactLabel && (w.Op == "has") == (i != fails):
			s.Labels = append(slices.Clone(s.Labels), act.Label(label))
		case w.Fact == policy.FactHour:
			hours = true
		}
	}
	if len(args) > 0 {
		s.Args = args
	}
	day := s.Now.UTC()
	for h := 0; hours && h < 24; h++ {
		q := &question{now: time.Date(day.Year(), day.Month(), day.Day(), h, 0, 0, 0, time.UTC)}
		right := true
		for i, w := range conditions {
			right = right && (w.Fact != policy.FactHour || holds(w, q, false) == (i != fails))
		}
		if right {
			s.Now = q.now
			return
		}
	}
}

func otherValue(v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case int64:
		return v + 1
	}
	return "something-else"
}

// kinds returns a few kinds of the clause: the first and the last on each type
// of resource.
func (x *examples) kinds() []act.Kind {
	kinds := x.clause.Kinds
	if len(x.clause.Groups) > 0 {
		kinds = append(slices.Clone(kinds), act.Call)
	}
	if len(kinds) == 0 {
		kinds = act.Kinds()
		if len(x.clause.On) > 0 {
			kinds = nil
			for _, p := range x.clause.On {
				kinds = append(kinds, ofType(p.Type)...)
			}
		}
	}
	var out []act.Kind
	for _, t := range typesOf(&deed{kinds: ordered(kinds)}) {
		of := common(ordered(kinds), ofType(t))
		out = union(out, []act.Kind{of[0], of[len(of)-1]})
	}
	return slices.DeleteFunc(out, func(k act.Kind) bool { return k == act.Resolve || k == act.Connect })
}

// samples returns resources on both sides of the patterns that the clause has
// for the type of k.
func (x *examples) samples(k act.Kind) []sample {
	var all []sample
	for _, p := range x.clause.On {
		if p.Type == k.On() && len(all) < x.limit {
			all = append(all, x.around(p)...)
		}
	}
	if len(all) == 0 || len(x.clause.On) == 0 {
		all = append(all, openSamples(k.On())...)
	}
	return all
}

func (x *examples) add(s Scenario, what string, k act.Kind, text string) {
	if len(x.out) >= x.limit {
		return
	}
	e := act.Effect{Kind: k, Resource: act.Resource{Type: k.On(), Text: text}}
	if k.On() == act.Remote {
		e.Resource.Facts = map[string]any{act.FactConfigured: true} // a bare "push" is to these
	}
	if k == act.Call {
		e.Group = act.Observe
		if len(x.clause.Groups) > 0 && what != "another group" {
			e.Group = x.clause.Groups[0]
		}
		if what == "another group" {
			e.Group = ""
		}
		if s.Tool == "" {
			s.Tool = text
		}
		e.Resource.Text = s.Tool
	}
	if k == act.Install {
		age := int64(24 * 365)
		for _, w := range x.clause.When {
			if n, ok := w.Value.(int64); ok && w.Fact == "resource:"+act.FactAgeHours {
				age = ageFor(w.Op, n, what != "too young" && what != "old enough")
			}
		}
		if what != "age unknown" {
			e.Resource.Facts = map[string]any{act.FactAgeHours: age}
		}
	}
	s.Case, s.Effects = what, []act.Effect{e}
	if key := caseKey(&s); !x.seen[key] {
		x.seen[key] = true
		x.out = append(x.out, s)
	}
}

// otherKinds adds an effect that the clause does not speak of, on the same
// resource.
func (x *examples) otherKinds(base Scenario) {
	for _, k := range x.kinds() {
		for _, other := range ofType(k.On()) {
			if len(x.clause.Kinds) > 0 && !slices.Contains(x.clause.Kinds, other) && other != act.Resolve && other != act.Connect {
				x.add(base, "another effect", other, x.samples(k)[0].text)
				break
			}
		}
		if k == act.Call && len(x.clause.Groups) > 0 {
			x.add(base, "another group", act.Call, "server.tool")
		}
	}
}

// otherCallers adds the same effect by another principal and another tool.
func (x *examples) otherCallers(base Scenario) {
	kinds := x.kinds()
	if len(kinds) == 0 {
		return
	}
	k, text := kinds[0], x.samples(kinds[0])[0].text
	if len(x.clause.Who) > 0 {
		s := base
		s.Principal = "stranger/agent"
		x.add(s, "another principal", k, text)
	}
	if len(x.clause.Tools) > 0 {
		s := base
		s.Tool = "other-server.other_tool"
		x.add(s, "another tool", k, text)
		if k != act.Call {
			s.Tool = ""
			x.add(s, "no tool", k, text)
		}
	}
}

// otherTimes adds the effect at the limit, and after the end of the clause.
func (x *examples) otherTimes(base Scenario) {
	kinds := x.kinds()
	if len(kinds) == 0 {
		return
	}
	k, text := kinds[0], x.samples(kinds[0])[0].text
	if l := x.clause.Limit; l != nil {
		for _, n := range []int64{l.Count - 1, l.Count} {
			s := base
			s.Counts = map[string]int64{x.clause.ID: n}
			x.add(s, "near the limit", k, text)
		}
	}
	if e := x.clause.Expires; e != nil {
		s := base
		s.Now = *e
		x.add(s, "expired", k, text)
	}
}

// conditions adds, for each condition, the effect when it fails.
func (x *examples) conditions(base Scenario) {
	kinds := x.kinds()
	if len(kinds) == 0 {
		return
	}
	k, text := kinds[0], x.samples(kinds[0])[0].text
	for i, w := range x.clause.When {
		s := base
		s.Labels, s.Args = nil, nil
		satisfy(&s, x.clause.When, i)
		if w.Fact == "resource:"+act.FactResembles {
			x.add(s, "a popular package", k, "npm:lodash@1.0.0")
			x.add(s, "a name like a popular one", k, "npm:lodahs@1.0.0")
			continue
		}
		if strings.HasPrefix(w.Fact, "resource:") {
			x.add(s, "too young", k, text)
			x.add(s, "age unknown", k, text)
			continue
		}
		x.add(s, "condition fails", k, text)
		if strings.HasPrefix(w.Fact, "arg:") {
			s.Args = nil
			x.add(s, "argument absent", k, text)
		}
	}
}

// exception adds what an exception leaves out.
func (x *examples) exception(base Scenario, e policy.Exception) {
	s := base
	satisfy(&s, e.When, -1)
	if len(e.Tools) > 0 {
		s.Tool = strings.Replace(e.Tools[0], "*", "something", 1)
	}
	kinds := e.Kinds
	if len(kinds) == 0 {
		kinds = x.kinds()
	}
	for _, k := range kinds {
		if k == act.Resolve || k == act.Connect {
			continue
		}
		found := false
		for _, p := range e.On {
			if p.Type == k.On() {
				found = true
				for _, n := range x.around(p) {
					x.add(s, "at an exception, "+n.what, k, n.text)
				}
			}
		}
		if !found && len(e.On) == 0 {
			x.add(s, "excepted", k, x.samples(k)[0].text)
		}
	}
}

// openSamples are resources of a type that a clause does not narrow.
func openSamples(t act.ResourceType) []sample {
	texts := map[act.ResourceType][]string{
		act.Path: {"/work/project/some/file.txt", "/elsewhere/file"}, act.Repo: {"repo:/work/project", "repo:/elsewhere"},
		act.Host: {"public.example.net:443"}, act.URL: {"https://public.example.net/x", "http://localhost/", "http://10.1.2.3/"},
		act.Remote: {"https://git.example.net/a/b#refs/heads/topic", "https://git.example.net/a/b"}, act.Command: {`["/usr/bin/something","x"]`, `["/work/project/something"]`},
		act.Package: {"npm:something@1.0.0", "pypi:something@1.0.0"}, act.Recipient: {"someone@public.example.net"},
		act.Secret: {"some-secret"}, act.Model: {"provider/model"}, act.Memory: {"notes"}, act.Person: {"someone"}, act.Tool: {"server.tool"},
	}
	var all []sample
	for _, s := range texts[t] {
		all = append(all, sample{"anything", s})
	}
	return all
}

// around returns resources inside a pattern, and outside it but close.
func (x *examples) around(p policy.Pattern) []sample {
	if p.List != "" {
		l := x.lists[strings.TrimPrefix(p.List, "@")]
		var all []sample
		for _, m := range slices.Concat(l.Members, l.Added) {
			if pat, problem := memberPattern(m, p.Type); problem == "" && len(all) < 8 && !slices.Contains(l.Removed, m) {
				all = append(all, x.around(pat)...)
			}
		}
		return append(all, openSamples(p.Type)...)
	}
	switch p.Type {
	case act.Path, act.Repo, act.Command:
		return aroundPath(p)
	case act.URL, act.Host, act.Remote, act.Recipient:
		return aroundHost(p)
	case act.Package:
		return aroundPackage(p)
	default:
		if p.Name != "" {
			named := strings.ReplaceAll(p.Name, "*", "something")
			return []sample{{"the same", named}, {"another", "other-" + named}}
		}
		if p.Exact == "" {
			return openSamples(p.Type)
		}
		return []sample{{"the same", strings.Replace(p.Exact, "*", "something", 1)}, {"another", p.Exact + "-other"}}
	}
}

func aroundPath(p policy.Pattern) []sample {
	file := func(s string) string {
		switch p.Type {
		case act.Repo:
			return "repo:" + s
		case act.Command:
			return `["` + s + `","x"]`
		default:
			return s
		}
	}
	named := strings.ReplaceAll(p.Name, "*", "x")
	switch {
	case p.Beneath == "" && p.Name == "":
		return openSamples(p.Type)
	case p.Type == act.Command && p.Name != "" && p.Beneath == "":
		return []sample{{"the program", file("/usr/bin/" + named)}, {"another program", file("/usr/bin/" + named + "-other")}, {"a lookalike", file("/work/project/" + named)}}
	case p.Beneath == "":
		return []sample{{"the name", file("/work/project/sub/" + named)}, {"the name elsewhere", file("/elsewhere/" + named)}, {"another name", file("/work/project/sub/" + named + ".other")}}
	}
	dir := bound(p.Beneath)
	if named != "" {
		return []sample{{"the name inside", file(path.Join(dir, "sub", named))}, {"another name inside", file(path.Join(dir, "sub", named+".other"))}, {"the name outside", file("/elsewhere/" + named)}}
	}
	return []sample{{"inside", file(path.Join(dir, "sub/inside"))}, {"itself", file(dir)}, {"beside, same beginning", file(dir + "x/file")}, {"outside", file("/elsewhere/file")}}
}

func aroundHost(p policy.Pattern) []sample {
	at := func(what, host, rest string) sample {
		switch p.Type {
		case act.Recipient:
			return sample{what, "someone@" + host}
		case act.Host:
			if !strings.Contains(host, ":") {
				host += ":443"
			}
			return sample{what, host}
		case act.Remote:
			if rest == "/" {
				rest = "/a/b"
			}
		default:
		}
		return sample{what, "https://" + host + rest}
	}
	site := p.Site
	if p.Exact != "" {
		if p.Type == act.Recipient {
			return []sample{{"the address", p.Exact}, {"another", "x" + p.Exact}, {"a lookalike", p.Exact + ".evil.example"}}
		}
		site = p.Exact
	}
	var all []sample
	switch network, err := netip.ParsePrefix(site); {
	case p.Prefix != "":
		host, rest, _ := strings.Cut(p.Prefix, "/")
		all = []sample{at("the place", host, "/"+rest), at("beneath the place", host, "/"+rest+"/x"), at("beside the place", host, "/"+rest+"x/y"), at("a lookalike", host+".evil.example", "/"+rest)}
	case site == "":
		all = openSamples(p.Type)
	case err == nil:
		host := network.Addr().Next().String()
		if network.Addr().Is6() {
			host = "[" + host + "]"
		}
		all = []sample{at("in the network", host, "/"), at("another address", "93.184.215.14", "/")}
	default:
		domain, wild := strings.CutPrefix(site, "*.")
		all = []sample{at("the host", domain, "/"), at("a lookalike", strings.Split(domain, ":")[0]+".evil.example", "/"), at("another host", "other.example.net", "/")}
		if wild || strings.Contains(domain, ".") && strings.Trim(domain, "0123456789.:") != "" {
			all = append(all, at("a name beneath", "sub."+domain, "/"), at("a name that ends alike", "evil"+domain, "/"))
		}
	}
	if p.Type != act.Remote {
		return all
	}
	return withRefs(p, all)
}

// withRefs gives remotes the refs on both sides of a pattern.
func withRefs(p policy.Pattern, all []sample) []sample {
	ref := p.Ref
	if ref == "" {
		ref = "refs/heads/topic"
	}
	ref = strings.ReplaceAll(ref, "*", "x")
	var out []sample
	for i, s := range all {
		base, _, _ := strings.Cut(s.text, "#")
		out = append(out, sample{s.what, base + "#" + ref})
		if i == 0 {
			out = append(out, sample{s.what + ", another ref", base + "#refs/heads/zz-other"}, sample{s.what + ", any ref", base})
		}
	}
	return out
}

func aroundPackage(p policy.Pattern) []sample {
	registry, pkg, _ := strings.Cut(p.Package, ":")
	named := strings.ReplaceAll(pkg, "*", "something")
	other := "pypi"
	if registry == other {
		other = "npm"
	}
	if p.Package == "" {
		return openSamples(act.Package)
	}
	return []sample{{"the package", registry + ":" + named + "@1.0.0"}, {"another package", registry + ":zz-other@1.0.0"}, {"another registry", other + ":" + named + "@1.0.0"}}
}

// ageFor returns an age that compares, or does not.
func ageFor(op string, n int64, hold bool) int64 {
	for _, try := range []int64{n, n - 1, n + 1} {
		if compares(try, op, n) == hold {
			return max(0, try)
		}
	}
	return n
}
