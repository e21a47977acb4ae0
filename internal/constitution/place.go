package constitution

import (
	"net/netip"
	"path"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// prepositions begin a place, a host or a direction.
const prepositions = ` in into under beneath below inside within from to on at of onto outside via through `

// mod reads one place, host or direction.
func (p *parser) mod(verb string, nesting int) (mod, bool) {
	m := mod{at: p.i}
	t := p.peek()
	if t.group != 0 {
		return m, false
	}
	switch t.low {
	case "elsewhere":
		p.i++
		m.rest, m.prep, m.end = true, "in", p.i
		return m, true
	case "anywhere", "everywhere":
		p.i++
		m.prep, m.end = "in", p.i
		if next := p.peek(); next.low == "outside" || !contains(prepositions, next.low) {
			return m, true
		}
	}
	t = p.peek()
	if !contains(prepositions, t.low) {
		p.i = m.at
		return m, p.miss(m.at)
	}
	p.i++
	m.prep, m.not = t.low, t.low == "outside"
	for {
		start := p.i
		if t := p.peek(); contains(prepositions, t.low) && t.group == 0 && len(m.objects) > 0 { // "in ./src or under ./lib"
			if m.not || t.low == "outside" {
				p.wrong(p.i, "write a sentence for each", "\"outside\" and another place are joined, which can be read in two ways")
				break
			}
			p.i++
		}
		o, ok := p.target(&m, verb, nesting)
		if !ok {
			p.i = start
			break
		}
		m.objects = append(m.objects, o)
		m.rest = m.rest || o.rest
		joint := p.i
		if !p.joint() || p.startsVerb() || p.startsFrame() {
			p.i = joint
			break
		}
	}
	m.end = p.i
	if len(m.objects) == 0 {
		p.i = m.at
		return m, false
	}
	if n := len(m.objects); n > 0 && p.i > 0 {
		p.backOverJoint(m.objects[n-1].end)
	}
	return m, true
}

// backOverJoint goes back to end, when only a joint was read since.
func (p *parser) backOverJoint(end int) {
	for i := end; i < p.i; i++ {
		if t := p.toks[i]; !t.is(",") && !t.is("and") && !t.is("or") && !t.is("/") {
			return
		}
	}
	p.i = end
}

// target reads what a preposition points to.
func (p *parser) target(m *mod, verb string, nesting int) (object, bool) {
	start := p.i
	p.skip(determiners)
	t := p.peek()
	if t.group == 0 && t.kind == word && (t.low == "main" || contains(branchWords, t.low)) && words().nouns[p.peekAt(1).low] == "branch" {
		if strings.HasSuffix(p.peekAt(1).low, "s") || strings.HasSuffix(p.peekAt(1).low, "es") {
			p.wrong(p.i, "branches named "+t.low+"/*", "%q names one branch: say which are meant", textOf(p.toks[p.i:p.i+2]))
			return object{}, false
		}
		p.i += 2
		return object{at: start, end: p.i, class: "branch", names: []name{{tok: t, text: t.text}}}, true
	}
	if t.kind == atom || t.group != 0 { // "the ./vendor folder"
		if next := words().nouns[p.peekAt(1).low]; next == "folder" || next == "site" || next == "repo" {
			p.i += 2
			return p.finishTarget(object{at: start, class: next, names: []name{{tok: t, text: t.text}}}), true
		}
	}
	if t.kind == word && t.group == 0 && words().nouns[p.peekAt(1).low] == "folder" && !known(t.low) && qualWords[t.low] == "" && placeNouns[t.low] == "" && !contains(grammarWords, t.low) {
		p.wrong(p.i, "in ./"+t.text, "%q is a place only when it is written as a path", textOf(p.toks[p.i:p.i+2]))
	}
	if next := p.peekAt(1); len(m.objects) > 0 && t.kind == word && t.group == 0 && !known(t.low) && !contains(grammarWords+stopWords, t.low) && (next.at < 0 || next.kind == punct || next.is("and") || next.is("or")) && !p.isName(t, verb, "") {
		p.wrong(p.i, "./"+t.text, "%q is a place only when it is written as a path", t.text)
	}
	if words().nouns[t.low] == "repo" && t.group == 0 && !p.isName(p.peekAt(1), verb, "repo") {
		p.i++
		return p.finishTarget(object{at: start, class: "folder", root: "${workspace}"}), true
	}
	p.i = start
	return p.object(verb, nesting+1)
}

func (p *parser) finishTarget(o object) object {
	p.relative(&o)
	if o.class == "repo" && len(o.names) > 0 {
		o.class = "folder"
	}
	o.end = p.i
	return o
}

// looksPath reports whether s is written as a path.
func looksPath(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") ||
		strings.HasPrefix(s, "${") || s == "." || s == ".."
}

// looksHost reports whether s is written as a host, a host and a path, a
// network, or an address.
func looksHost(s string) bool {
	if strings.Contains(s, "://") || strings.HasPrefix(s, "localhost") {
		return true
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	host, _, _ := strings.Cut(s, "/")
	if h, _, err := weburl.ParseHostPort(host); err == nil {
		if _, ip := h.Addr(); ip {
			return true
		}
	}
	labels := strings.Split(strings.TrimPrefix(host, "*."), ".")
	if len(labels) < 2 {
		return strings.HasPrefix(host, "*.") && contains(localSuffixes, labels[0])
	}
	for i, l := range labels {
		if i == len(labels)-1 {
			l, _, _ = strings.Cut(l, ":")
		}
		if l == "" || strings.Trim(strings.ToLower(l), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return !looksPath(s)
}

// siteSuffixes are endings of hosts that are not endings of files; where a verb
// takes both, a name that ends so is not read either way.
const siteSuffixes = ` com org net io dev ai app edu gov uk de fr eu ch us ca au jp cloud info biz `

// localSuffixes are endings of the names of local networks.
const localSuffixes = " internal local localhost lan corp home intranet "

// pathPattern reads a name as a path or the base name of one. A name that is not
// a path is taken beneath the workspace where place is set.
func pathPattern(n name, place bool) (policy.Pattern, string) {
	pat := policy.Pattern{Type: act.Path}
	s := n.text
	switch {
	case n.tok.kind == list && !n.named:
		pat.List = s
		return pat, ""
	case n.named && !strings.Contains(s, "/"):
		pat.Name = s
		return pat, ""
	case strings.Contains(s, "://"), strings.Contains(s, "@"):
		return pat, "is not a path"
	}
	dir, base := s, ""
	if i := strings.IndexAny(s, "*?[{"); i >= 0 && !strings.HasPrefix(s, "${") {
		cut := strings.LastIndexByte(s[:i], '/') + 1
		dir, base = s[:cut], s[cut:]
	}
	for _, any := range []string{"**/*", "**/", "*/"} {
		if strings.HasPrefix(base, any) && base != "*/" {
			base = strings.TrimPrefix(base, any)
			if any == "**/*" && base != "" {
				base = "*" + base
			}
			break
		}
	}
	base = strings.TrimSuffix(base, "/")
	if base == "*" || base == "**" {
		base = ""
	}
	if strings.ContainsAny(base, "/?[{") {
		return pat, "is a pattern that is not understood: * may stand in the last part only"
	}
	if dir == "" || dir == s && !looksPath(s) && !strings.Contains(s, "/") && !place {
		pat.Name = base + strings.TrimSuffix(dir, "/")
		return pat, ""
	}
	root, problem := rooted(dir)
	pat.Beneath, pat.Name = root, base
	return pat, problem
}

// rooted returns the canonical form of a path, with its symbolic root. Relative
// paths are relative to the workspace.
func rooted(s string) (root, problem string) {
	switch {
	case s == "~" || strings.HasPrefix(s, "~/"):
		s = "${home}" + s[1:]
	case strings.HasPrefix(s, "~"):
		return "", "names the home of another user: write the whole path"
	case strings.HasPrefix(s, "${workspace}"), strings.HasPrefix(s, "${home}"):
	case strings.HasPrefix(s, "$"):
		return "", "has a variable; only ${workspace} and ${home} are known"
	case !strings.HasPrefix(s, "/"):
		s = "${workspace}/" + s
	}
	clean := path.Clean(s)
	if strings.HasPrefix(s, "$") && !strings.HasPrefix(clean, s[:strings.IndexByte(s, '}')+1]) {
		return "", "leads out of its root: write the whole path"
	}
	if strings.Contains(clean, "\\") {
		return "", "has a backslash: write paths with /"
	}
	return clean, ""
}

// hostPattern reads a name as a host, a network, or a place on a host.
func hostPattern(n name, t act.ResourceType) (policy.Pattern, string) {
	pat := policy.Pattern{Type: t}
	s := n.text
	if n.tok.kind == list {
		pat.List = s
		return pat, ""
	}
	if t == act.Recipient {
		return recipientPattern(s)
	}
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	s = strings.TrimSuffix(strings.TrimSuffix(s, "/*"), "/**")
	if net, err := netip.ParsePrefix(s); err == nil {
		if net.Masked() != net {
			return pat, "is not a network: write " + net.Masked().String()
		}
		pat.Site = net.String()
		return pat, ""
	}
	host, rest, _ := strings.Cut(s, "/")
	star := strings.HasPrefix(host, "*.")
	canonical, problem := hostText(strings.TrimPrefix(host, "*."))
	if star && contains(localSuffixes, host[2:]) {
		canonical, problem = host[2:], ""
	}
	if problem != "" {
		return pat, problem
	}
	if star {
		canonical = "*." + canonical
	}
	switch rest = strings.Trim(rest, "/"); {
	case rest == "":
		pat.Site = canonical
	case star || strings.ContainsAny(rest, "*?#"):
		return pat, "is a pattern that is not understood: write a host such as *.example.org, or a place such as example.org/docs"
	case t == act.Host:
		pat.Site = canonical
	default:
		pat.Prefix = canonical + "/" + rest
	}
	return pat, ""
}

func hostText(s string) (host, problem string) {
	h, port, err := weburl.ParseHostPort(s)
	if err != nil || h.IsZero() {
		return "", "is not a host"
	}
	name := h.String()
	if _, ip := h.Addr(); !ip && (strings.ContainsAny(name, "*_ ") || !strings.Contains(name, ".") && name != "localhost") {
		return "", "is not a host: write its whole name, such as example.org"
	}
	if port != 0 {
		return h.WithPort(port), ""
	}
	return name, ""
}

func recipientPattern(s string) (policy.Pattern, string) {
	pat := policy.Pattern{Type: act.Recipient}
	local, domain, found := strings.Cut(s, "@")
	if !found {
		domain = s
	}
	star := strings.HasPrefix(domain, "*.")
	host, problem := hostText(strings.TrimPrefix(domain, "*."))
	switch {
	case problem != "" || strings.Contains(host, ":"):
		return pat, "is not a mail address: write name@example.org, or a domain"
	case found && local != "":
		pat.Exact = local + "@" + host
	case star:
		pat.Site = "*." + host
	default:
		pat.Site = host
	}
	return pat, ""
}

// remotePattern reads a name as a git remote or a branch.
func remotePattern(n name, class string) (policy.Pattern, string) {
	pat := policy.Pattern{Type: act.Remote}
	s := strings.TrimSuffix(n.text, ".git")
	switch {
	case n.tok.kind == list:
		pat.List = n.text
		return pat, ""
	case class == "tag":
		pat.Ref = "refs/tags/" + n.text
		return pat, ""
	case strings.HasPrefix(s, "refs/"):
		pat.Ref = s
		return pat, ""
	case class != "branch" && strings.HasPrefix(s, "git@"):
		host, rest, _ := strings.Cut(strings.TrimPrefix(s, "git@"), ":")
		s = host + "/" + rest
		fallthrough
	case class != "branch" && looksHost(s):
		p, problem := hostPattern(name{text: s}, act.Remote)
		return p, problem
	}
	switch first, _, _ := strings.Cut(s, "/"); {
	case s == "origin" || s == "upstream":
		return pat, "names a remote by its nickname, which the repository can change: write its place, such as github.com/me/repo"
	case first == "origin" || first == "upstream":
		return pat, "names a remote by its nickname: write \"main of github.com/me/repo\""
	case strings.Contains(strings.TrimSuffix(s, "*"), "*"):
		return pat, "is a pattern that is not understood: * may stand at the end of a branch"
	case strings.ContainsAny(s, " ~^:?[\\") || strings.HasPrefix(s, "-") || looksPath(s):
		return pat, "is not a branch"
	}
	pat.Ref = "refs/heads/" + s
	return pat, ""
}
