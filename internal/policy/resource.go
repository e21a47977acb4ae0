package policy

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"ringfence/internal/act"
	"ringfence/internal/act/popular"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// Entity types that are no type of resource.
const (
	typeAgent   = types.EntityType("Agent")
	typePersona = types.EntityType("Persona")
	typeList    = types.EntityType("List")
	typeProgram = types.EntityType("Program")
	typeNetwork = types.EntityType("Network")
	typeDomain  = types.EntityType("Domain")
	typePrefix  = types.EntityType("Prefix")
	typeRegist  = types.EntityType("Registry")
	typeServer  = types.EntityType("Server")
	typeGroup   = types.EntityType("ToolGroup")
	typeText    = types.EntityType("TextArgs")
	typeNumber  = types.EntityType("NumberArgs")
	typeFlag    = types.EntityType("FlagArgs")
	typeCounts  = types.EntityType("Counts")
	typeAction  = types.EntityType("Action")
)

// Entity types that are types of resource.
const (
	typePath      = types.EntityType(act.Path)
	typeRepo      = types.EntityType(act.Repo)
	typeHost      = types.EntityType(act.Host)
	typeURL       = types.EntityType(act.URL)
	typeRemote    = types.EntityType(act.Remote)
	typeCommand   = types.EntityType(act.Command)
	typeRecipient = types.EntityType(act.Recipient)
	typePackage   = types.EntityType(act.Package)
	typeTool      = types.EntityType(act.Tool)
)

// maxText bounds the canonical text of a resource, in bytes, and with it the
// depth of its hierarchy.
const maxText = 64 << 10

// A resource is a resource as Cedar sees it: its id, everything it is beneath,
// nearest first (networks and lists aside, which depend on the policy), and its
// attributes. All of it follows from the canonical text and the given facts.
type resource struct {
	uid    types.EntityUID
	up     []types.EntityUID
	values []value
	has    nameSet // the names of values
	host   string  // of a Host, URL or Remote; "" if it has none
	port   string  // "" if any
}

func (r *resource) set(n name, v types.Value) {
	r.values = append(r.values, value{n, v})
	r.has |= setOf(n)
}

func (r *resource) beneath(t types.EntityType, id string) {
	r.up = append(r.up, types.EntityUID{Type: t, ID: types.String(id)})
}

// newResource reads the canonical text of e. It returns an error if the text is
// not canonical, or if a fact does not fit the schema.
func newResource(e act.Effect) (*resource, error) {
	a := e.Resource
	if err := checkFacts(a); err != nil {
		return nil, err
	}
	if a.Text == "" || len(a.Text) > maxText {
		return nil, fmt.Errorf("%s text of %d bytes, want 1 to %d", a.Type, len(a.Text), maxText)
	}
	r := &resource{uid: types.EntityUID{Type: types.EntityType(a.Type), ID: types.String(a.Text)}}
	r.values = make([]value, 0, 8)
	if class, ok := a.Facts[act.FactClass].(string); ok {
		r.set(nameClass, types.String(class))
	}
	var err error
	switch a.Type {
	case act.Path:
		err = r.asPath(a)
	case act.Repo:
		err = r.asRepo(a)
	case act.Host:
		err = r.asHost(a)
	case act.URL:
		err = r.asURL(a)
	case act.Remote:
		err = r.asRemote(a)
	case act.Command:
		err = r.asCommand(a)
	case act.Recipient:
		err = r.asRecipient(a)
	case act.Package:
		err = r.asPackage(a)
	case act.Tool:
		err = r.asTool(e)
	default: // Secret, Model, Memory, Person
		r.set(nameName, types.String(a.Text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", a.Type, clip(a.Text), err)
	}
	return r, nil
}

var errPath = errors.New("not an absolute path in canonical form")

// canonicalPath reports whether p is absolute, has no ".", "..", doubled or
// final slashes, and no NUL.
func canonicalPath(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.Contains(p, "\x00")
}

// parents adds the directories that p is in as far as "/"; with self, p too.
func (r *resource) parents(p string, self bool) {
	if r.up == nil {
		r.up = make([]types.EntityUID, 0, 2+strings.Count(p, "/"))
	}
	if self {
		r.beneath(typePath, p)
	}
	for p != "/" {
		p = p[:max(1, strings.LastIndexByte(p, '/'))]
		r.beneath(typePath, p)
	}
}

func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

func (r *resource) asPath(a act.Resource) error {
	if !canonicalPath(a.Text) {
		return errPath
	}
	r.parents(a.Text, false)
	name, ext := base(a.Text), ""
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		ext = name[i+1:]
	}
	r.set(nameName, types.String(name))
	r.set(nameExt, types.String(ext))
	if exists, ok := a.Facts[act.FactExists].(bool); ok {
		r.set(nameExists, types.Boolean(exists))
	}
	if linked, ok := a.Facts[factHardlinked].(bool); ok {
		r.set(nameHardlinked, types.Boolean(linked))
	}
	return nil
}

func (r *resource) asRepo(a act.Resource) error {
	p, ok := strings.CutPrefix(a.Text, "repo:")
	if !ok || !canonicalPath(p) {
		return errors.New(`not "repo:" and an absolute path in canonical form`)
	}
	r.parents(p, true)
	r.set(nameName, types.String(base(p)))
	if made, ok := a.Facts[act.FactNewRepo].(bool); ok {
		r.set(nameNew, types.Boolean(made))
	}
	return nil
}

// network adds what a host and port are beneath, and their attributes.
func (r *resource) network(host, port string) {
	r.host, r.port = host, port
	if port != "" {
		r.beneath(typeHost, host+":"+port)
	}
	r.beneath(typeHost, host)
	r.domains(host)
	r.set(nameHost, types.String(host))
	r.set(namePrivate, types.Boolean(privateHost(host)))
	if port != "" {
		n, _ := strconv.ParseUint(port, 10, 16) // checked where it was split off
		r.set(namePort, types.Long(n))
	}
}

// hostResource returns the host of r as a resource: on a port, or with port "" on
// any. It has the class of r.
func hostResource(r *resource, port string) *resource {
	h := &resource{values: make([]value, 0, 4), up: make([]types.EntityUID, 0, 8)}
	h.network(r.host, port)
	h.uid, h.up = h.up[0], h.up[1:]
	for _, v := range r.values {
		if v.name == nameClass {
			h.set(v.name, v.val)
		}
	}
	return h
}

// domains adds the domains that a host is in, its own name first.
func (r *resource) domains(host string) {
	if _, ok := hostAddr(host); ok {
		return
	}
	for {
		r.beneath(typeDomain, host)
		i := strings.IndexByte(host, '.')
		if i < 0 {
			return
		}
		host = host[i+1:]
	}
}

// prefixes adds host and path of a URL, and each shorter run of whole path
// segments, with any port and with this one.
func (r *resource) prefixes(host, port, p string) {
	full := foldPrefix(strings.TrimSuffix(host+p, "/"))
	ported := host
	if port != "" {
		ported += ":" + port
	}
	withPort := foldPrefix(strings.TrimSuffix(ported+p, "/"))
	for {
		r.beneath(typePrefix, full)
		if port != "" {
			r.beneath(typePrefix, withPort)
		}
		if len(full) <= len(host) {
			return
		}
		full = full[:strings.LastIndexByte(full, '/')]
		withPort = withPort[:strings.LastIndexByte(withPort, '/')]
	}
}

var errHost = errors.New("not a host and port in canonical form")

func (r *resource) asHost(a act.Resource) error {
	host, port, err := weburl.ParseHostPort(a.Text)
	if err != nil {
		return err
	}
	digits, canonical := "", host.String()
	if port != 0 {
		digits, canonical = strconv.Itoa(int(port)), host.WithPort(port)
	}
	if canonical != a.Text {
		return errHost
	}
	r.network(host.String(), digits)
	r.up = r.up[1:] // the first is r itself
	return nil
}

func (r *resource) asURL(a act.Resource) error {
	u, err := weburl.Parse(a.Text)
	if err != nil {
		return err
	}
	if u.String() != a.Text {
		return errors.New("not a URL in canonical form")
	}
	if climbs(u.Path) {
		return errClimbs
	}
	port := strconv.Itoa(int(u.Port))
	r.up = make([]types.EntityUID, 0, 8+2*strings.Count(u.Path, "/"))
	r.network(u.Host.String(), port)
	r.prefixes(u.Host.String(), port, u.Path)
	r.set(nameScheme, types.String(u.Scheme))
	r.set(namePath, types.String(u.Path))
	return nil
}

var errClimbs = errors.New(`a path that is "..", once its escapes are undone`)

// climbs reports whether p has a segment ".." once escapes are undone, however
// often a server may do that: such a path is beneath no prefix for certain.
func climbs(p string) bool {
	for range 4 {
		for s := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
			if s == ".." {
				return true
			}
		}
		plain := weburl.Unescape(p)
		if plain == p {
			return false
		}
		p = plain
	}
	return true
}

// asRemote reads a git remote: a URL of any scheme, "user@host:path" or an
// absolute path, then "#" and a ref if one is named.
func (r *resource) asRemote(a act.Resource) error {
	url, ref, hasRef := strings.Cut(a.Text, "#")
	if f, ok := a.Facts[act.FactRemoteURL].(string); ok && f != url {
		return fmt.Errorf("fact %q is another URL: %q", act.FactRemoteURL, clip(f))
	}
	if f, ok := a.Facts[act.FactRef].(string); ok {
		if hasRef && f != ref {
			return fmt.Errorf("fact %q is another ref: %q", act.FactRef, clip(f))
		}
		ref, hasRef = f, true
	}
	r.set(nameURL, types.String(url))
	if hasRef {
		r.beneath(typeRemote, url)
		r.set(nameRef, types.String(ref))
	}
	if known, ok := a.Facts[act.FactConfigured].(bool); ok {
		r.set(nameConfigured, types.Boolean(known))
	}
	host, port, p, err := splitRemote(url)
	if err != nil {
		return err
	}
	if host == "" {
		r.parents(p, true)
		r.set(namePrivate, types.False)
		return nil
	}
	r.network(host, port)
	r.prefixes(host, port, p)
	if short, ok := strings.CutSuffix(p, ".git"); ok {
		r.beneath(typePrefix, foldPrefix(host+short))
		if port != "" {
			r.beneath(typePrefix, foldPrefix(host+":"+port+short))
		}
	}
	return nil
}

// remotePorts are the ports of the schemes that git speaks.
var remotePorts = map[string]string{"https": "443", "http": "80", "ssh": "22", "git": "9418"}

// splitRemote returns host, port ("" if unknown) and path of the URL of a git
// remote; the host is "" for a directory of this machine.
func splitRemote(url string) (host, port, p string, err error) {
	scheme, rest, isURL := strings.Cut(url, "://")
	if !isURL {
		scheme = "ssh"
	}
	switch {
	case isURL && scheme == "file" || strings.HasPrefix(url, "/"):
		if p = url; isURL {
			p = weburl.Unescape(rest)
		}
		if !canonicalPath(p) {
			return "", "", "", errPath
		}
		return "", "", p, nil
	case isURL:
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			i = len(rest)
		}
		host, p = rest[:i], rest[i:]
	default:
		host, p, _ = strings.Cut(url, ":")
		p = "/" + strings.TrimPrefix(p, "/")
	}
	host, port = cutHostPort(host[strings.LastIndexByte(host, '@')+1:])
	if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
		return "", "", "", errHost
	}
	if port == "" {
		port = remotePorts[scheme]
	}
	h, err := weburl.ParseHost(host)
	if err != nil {
		return "", "", "", err
	}
	if h.String() != host {
		return "", "", "", errHost
	}
	if climbs(p) {
		return "", "", "", errClimbs
	}
	return host, port, p, nil
}

// systemDirs hold the programs of the system itself: what a bare name runs, as
// far as the text alone can tell.
var systemDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"}

func (r *resource) asCommand(a act.Resource) error {
	var argv []string
	if err := strictjson.Unmarshal([]byte(a.Text), &argv); err != nil {
		return err
	}
	if len(argv) == 0 || !canonicalPath(argv[0]) {
		return errors.New("its program is not an absolute path in canonical form")
	}
	r.parents(argv[0], true)
	program, ok := a.Facts[FactProgram].(string)
	if !ok {
		for _, d := range systemDirs {
			if path.Dir(argv[0]) == d {
				program = base(argv[0])
			}
		}
	}
	if program != "" {
		r.beneath(typeProgram, program)
		r.set(nameProgram, types.String(program))
	}
	args := make([]types.Value, len(argv)-1)
	for i, s := range argv[1:] {
		args[i] = types.String(s)
	}
	r.set(nameArgs, types.NewSet(args...))
	return nil
}

func (r *resource) asRecipient(a act.Resource) error {
	i := strings.LastIndexByte(a.Text, '@')
	domain := a.Text[i+1:]
	if i <= 0 || domain == "" || strings.ToLower(domain) != domain {
		return errors.New("not an address with its domain in lower case")
	}
	r.beneath(typeHost, domain)
	r.domains(domain)
	r.set(nameDomain, types.String(domain))
	return nil
}

func (r *resource) asPackage(a act.Resource) error {
	registry, rest, ok := strings.Cut(a.Text, ":")
	name := rest
	if i := strings.LastIndexByte(rest, '@'); i > 0 {
		name = rest[:i]
		r.beneath(typePackage, registry+":"+name)
		r.set(nameVersion, types.String(rest[i+1:]))
	}
	if !ok || registry == "" || name == "" {
		return errors.New(`not "registry:name" or "registry:name@version"`)
	}
	if scope, _, ok := strings.Cut(name, "/"); ok {
		r.beneath(typePackage, registry+":"+scope+"/*")
	}
	r.beneath(typeRegist, registry)
	r.set(nameRegistry, types.String(registry))
	r.set(nameName, types.String(name))
	r.set(nameResembles, types.String(popular.Resembles(a.Text)))
	if age, ok := a.Facts[act.FactAgeHours].(int64); ok {
		r.set(nameAgeHours, types.Long(age))
	}
	return nil
}

// groupsOfCalls are the groups that a tool can be in.
var groupsOfCalls = []act.Group{act.Observe, act.Mutate, act.Irreversible, act.RemoteGroup}

func (r *resource) asTool(e act.Effect) error {
	server, tool, ok := strings.Cut(e.Resource.Text, ".")
	if !ok || server == "" || tool == "" {
		return errors.New(`not "server.tool"`)
	}
	if !IsAsked(tool) { // what is allowed of all tools of a server is not what it asks
		r.beneath(typeServer, server)
	}
	for _, g := range groupsOfCalls {
		if e.Is(g) {
			r.beneath(typeGroup, string(g))
		}
	}
	r.set(nameName, types.String(e.Resource.Text))
	return nil
}

// clip shortens s for a message.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
