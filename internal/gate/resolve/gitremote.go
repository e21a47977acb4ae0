package resolve

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// defaultRemote is the value of a remote argument that stands for the remote
// that git would use.
const defaultRemote = "@default"

// A remoteURL is where one remote leads.
type remoteURL struct {
	judged   string // canonical: without ".git", user of http, default port
	dispatch string // for git
	local    string // real path, for a repository on this machine
	host     weburl.Host
	known    bool // the configuration of the repository names it
}

// A remoteSubject is a remote: several URLs if git would push to several.
type remoteSubject struct {
	view   View
	name   string // as configured; "" for a URL
	urls   []remoteURL
	ref    string // "refs/heads/x"; "" if every ref could be touched
	forces bool   // configuration makes a push force
	byName bool   // configuration of the remote says what is pushed
	tags   bool   // configuration makes a push take tags along
}

// remote resolves a remote name or URL the way git does.
func (r *resolver) remote(t *target, text string) (subject, error) {
	repo := repoSubject{view: r.view}
	if t.arg.Base != "" {
		var err error
		if repo, err = r.repoOf(t); err != nil {
			return nil, err
		}
	}
	config, err := repo.config()
	if err != nil {
		return nil, err
	}
	dir := repo.dir.path
	if dir == "" {
		dir = r.call.Dir
	}
	s, err := r.view.findRemote(config, repo, text, dir, t.arg.Push)
	if err != nil || !t.arg.Push {
		return s, err
	}
	return s, s.findRef(config, repo, r.args.text(t.arg.Ref), r.args.text(t.arg.RefTo))
}

// findRemote returns the URLs that git would contact for text.
func (v View) findRemote(c gitConfig, repo repoSubject, text, dir string, push bool) (*remoteSubject, error) {
	s := &remoteSubject{view: v}
	name := text
	if name == defaultRemote {
		var err error
		if name, err = defaultRemoteOf(c, repo, push); err != nil {
			return nil, err
		}
	}
	if err := checkRemoteText(name); err != nil {
		return nil, err
	}
	urls, pushURLs := c.list("remote", name, "url"), c.list("remote", name, "pushurl")
	if len(urls)+len(pushURLs) > 0 {
		s.name = name
	} else if err := unknownRemote(c, repo, name); err != nil {
		return nil, err
	} else {
		urls = []string{name}
	}
	if slices.Contains(urls, "") || slices.Contains(pushURLs, "") {
		return nil, bad("", "is a remote with an empty URL, which versions of git read differently")
	}
	for _, key := range []string{"vcs", "uploadpack", "receivepack"} {
		if _, ok := c.get("remote", name, key); ok {
			return nil, bad("", "is a remote whose %s names a program", key)
		}
	}
	for _, raw := range c.rewrite(urls, pushURLs, push) {
		u, err := v.remoteURL(raw, dir)
		if err != nil {
			return nil, err
		}
		again := c.rewrite([]string{u.dispatch}, nil, push)
		if len(again) != 1 || again[0] != u.dispatch {
			return nil, bad("", "leads to %q, which git's configuration rewrites once more", raw)
		}
		u.known = s.name != "" || v.configured(c, u, dir, push)
		s.urls = append(s.urls, u)
	}
	if len(s.urls) == 0 {
		return nil, bad("", "is a remote without a URL")
	}
	s.forces = c.isTrue("remote", name, "mirror")
	s.byName = s.forces
	return s, nil
}

// configured reports whether a remote that c names leads to u.
func (v View) configured(c gitConfig, u remoteURL, dir string, push bool) bool {
	for _, name := range c.remotes() {
		for _, raw := range c.rewrite(c.list("remote", name, "url"), c.list("remote", name, "pushurl"), push) {
			if other, err := v.remoteURL(raw, dir); err == nil && other.judged == u.judged {
				return true
			}
		}
	}
	return false
}

// checkRemoteText refuses what git could read as an option or a helper program.
func checkRemoteText(s string) error {
	switch {
	case s == "":
		return bad("", "an empty remote names nothing")
	case s[0] == '-':
		return bad("", "could be read as an option")
	case len(s) > maxPath, hasControl(s), strings.Contains(s, " "):
		return bad("", "is no remote")
	}
	if i := strings.Index(s, "::"); i > 0 && strings.Trim(s[:i], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+.-") == "" {
		return bad("", "names the helper program git-remote-%s, which could run anything", s[:i])
	}
	return nil
}

// unknownRemote refuses a name that is no remote and no URL.
func unknownRemote(c gitConfig, repo repoSubject, name string) error {
	if strings.ContainsAny(name, ":/") || name == "." {
		return nil
	}
	known := c.remotes()
	hint := "this repository has no remotes"
	if len(known) > 0 {
		hint = "this repository has: " + strings.Join(known, ", ")
	}
	if near := strictjson.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return bad(hint, "is no remote of %q", repo.top)
}

// defaultRemoteOf returns the remote that git takes when none is named.
func defaultRemoteOf(c gitConfig, repo repoSubject, push bool) (string, error) {
	head, err := repo.head()
	if err != nil {
		return "", err
	}
	branch, onBranch := strings.CutPrefix(head, "refs/heads/")
	if push {
		if v, ok := c.get("branch", branch, "pushremote"); ok && onBranch {
			return v, nil
		}
		if v, ok := c.get("remote", "", "pushdefault"); ok {
			return v, nil
		}
	}
	if v, ok := c.get("branch", branch, "remote"); ok && onBranch {
		return v, nil
	}
	if names := c.remotes(); len(names) == 1 {
		return names[0], nil
	}
	return "origin", nil
}

// rewrite applies url.*.insteadOf and pushInsteadOf and chooses between url and
// pushurl (remote.c, alias_all_urls). A fetch takes the first.
func (c gitConfig) rewrite(urls, pushURLs []string, push bool) []string {
	if !push {
		if len(urls) > 1 {
			urls = urls[:1]
		}
		return c.aliases(urls, "insteadof")
	}
	if len(pushURLs) > 0 {
		return c.aliases(pushURLs, "insteadof")
	}
	var rewritten []string
	for _, u := range urls {
		if a := c.alias(u, "pushinsteadof"); a != u {
			rewritten = append(rewritten, a)
		}
	}
	if len(rewritten) > 0 {
		return rewritten
	}
	return c.aliases(urls, "insteadof")
}

func (c gitConfig) aliases(urls []string, key string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = c.alias(u, key)
	}
	return out
}

// alias rewrites u by the longest prefix that matches; of equally long ones by
// that of the base that came first. An empty prefix matches everything.
func (c gitConfig) alias(u, key string) string {
	var bases []string
	for i := range c {
		if s := &c[i]; s.section == "url" && s.key == key && !slices.Contains(bases, s.sub) {
			bases = append(bases, s.sub)
		}
	}
	base, longest := "", -1
	for _, b := range bases {
		for _, prefix := range c.list("url", b, key) {
			if len(prefix) > longest && strings.HasPrefix(u, prefix) {
				base, longest = b, len(prefix)
			}
		}
	}
	if longest < 0 {
		return u
	}
	return base + u[longest:]
}

// findRef sets the ref that a push changes.
func (s *remoteSubject) findRef(c gitConfig, repo repoSubject, branch, to string) error {
	s.tags = c.isTrue("push", "", "followtags")
	for _, name := range []string{branch, to} {
		if name == "" {
			continue
		}
		if err := checkBranch(name); err != nil {
			return valueError(err, "", name)
		}
	}
	switch {
	case s.forces:
		return nil
	case to != "":
		ref, err := remoteRef(to)
		s.ref = ref
		return err
	case branch != "":
		ref, err := repo.branchRef(branch)
		s.ref = ref
		return err
	}
	return s.configuredRef(c, repo)
}

// configuredRef sets the ref of a push that names no branch.
func (s *remoteSubject) configuredRef(c gitConfig, repo repoSubject) error {
	if specs := c.list("remote", s.name, "push"); len(specs) > 0 && s.name != "" {
		s.byName = true
		s.forces = slices.ContainsFunc(specs, func(x string) bool { return strings.HasPrefix(x, "+") })
		return nil
	}
	head, err := repo.head()
	if err != nil {
		return err
	}
	branch, onBranch := strings.CutPrefix(head, "refs/heads/")
	mode, _ := c.get("push", "", "default")
	switch strings.ToLower(mode) {
	case "matching":
		return nil
	case "upstream", "tracking":
		if m, ok := c.get("branch", branch, "merge"); ok && onBranch && checkRefName(m) == nil {
			s.ref = m
		}
		return nil
	}
	s.ref = head
	return nil
}

// real is the URL that git is to contact, or the name of the remote where that
// stands for more than a URL.
func (s *remoteSubject) real() (string, bool) {
	if len(s.urls) == 1 && !s.byName {
		return s.urls[0].dispatch, true
	}
	return s.name, s.name != ""
}

// on returns one effect for each URL, and those on files where it is on this
// machine. With tree the effect reaches every ref.
func (s *remoteSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	if k.On() != act.Remote {
		return nil, noEffect(k, "remote")
	}
	var all []act.Effect
	for _, u := range s.urls {
		ref := s.ref
		if tree || k == act.GitFetch {
			ref = ""
		}
		all = append(all, act.Effect{Kind: k, Resource: u.resource(ref)})
		if k == act.GitPush && s.tags && ref != "" {
			all = append(all, act.Effect{Kind: k, Resource: u.resource("")})
		}
		if k == act.GitPush && s.forces {
			all = append(all, act.Effect{Kind: act.GitForce, Resource: u.resource("")})
		}
		if u.local == "" {
			continue
		}
		p, err := follow(u.local)
		if err != nil {
			return nil, err
		}
		on := act.Overwrite
		if k == act.GitFetch {
			on = act.Read
		}
		all = append(all, act.Effect{Kind: on, Resource: pathSubject{s.view, p}.resource(on, true), Tree: true})
	}
	return all, nil
}

func (u remoteURL) resource(ref string) act.Resource {
	r := act.Resource{Type: act.Remote, Text: u.judged, Facts: map[string]any{act.FactRemoteURL: u.judged}}
	if u.known {
		r.Facts[act.FactConfigured] = true
	}
	if ref != "" {
		r.Text += "#" + ref
		r.Facts[act.FactRef] = ref
	}
	if !u.host.IsZero() {
		if c := classOfHost(u.host); c != "" {
			r.Facts[act.FactClass] = c
		}
	}
	return r
}

// namedRemote reads "<remote URL>#refs/heads/x".
func (v View) namedRemote(k act.Kind, text string) (act.Effect, error) {
	raw, ref, hasRef := strings.Cut(text, "#")
	if hasRef {
		if err := checkRefName(ref); err != nil {
			return act.Effect{}, err
		}
		ref = fullRef(ref)
	}
	if !strings.ContainsAny(raw, ":/") {
		return act.Effect{}, bad("write the URL of the remote", "names no URL")
	}
	u, err := v.remoteURL(raw, v.Workspace)
	if err != nil {
		return act.Effect{}, err
	}
	return act.Effect{Kind: k, Resource: u.resource(ref)}, nil
}
