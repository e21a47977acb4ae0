package resolve

import (
	"fmt"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// resolve finds what t names, and before it what its Base names.
func (r *resolver) resolve(t *target) error {
	if t.done {
		return nil
	}
	if t.busy {
		return &Error{Pointer: t.pointer, Why: "depends on itself in the annotation"}
	}
	t.busy = true
	subject, err := r.subject(t)
	if err != nil {
		return valueError(err, t.pointer, r.given(t))
	}
	t.subject, t.done = subject, true
	return nil
}

func (r *resolver) subject(t *target) (subject, error) {
	text := r.given(t)
	switch t.arg.Role {
	case policy.RolePath:
		base, err := r.base(t)
		if err != nil {
			return nil, err
		}
		p, err := r.view.place(text, base)
		return pathSubject{r.view, p}, err
	case policy.RoleRepo:
		base, err := r.base(t)
		if err != nil {
			return nil, err
		}
		return r.view.repo(text, base)
	case policy.RolePattern:
		return plain{}, checkPattern(text)
	case policy.RoleRef:
		return r.ref(t, text)
	case policy.RoleRemote:
		return r.remote(t, text)
	case policy.RoleURL:
		u, err := parseURL(text)
		return urlSubject{u}, err
	case policy.RoleHost:
		h, port, err := weburl.ParseHostPort(text)
		return hostSubject{h, port}, err
	case policy.RoleCommand:
		return r.command(t)
	case policy.RoleRecipient:
		return newNamed(act.Recipient, canonicalRecipient, text)
	case policy.RolePackage:
		return newNamed(act.Package, func(s string) (string, error) { return canonicalPackage(t.arg.Registry, s) }, text)
	case policy.RoleSecret:
		return newNamed(act.Secret, canonicalName, text)
	case policy.RoleMemory:
		return newNamed(act.Memory, canonicalName, text)
	case policy.RoleURI:
		return r.view.uri(text)
	default:
		return nil, bad("", "has the role %q in the annotation, which is none", t.arg.Role)
	}
}

// base returns the directory that t is relative to.
func (r *resolver) base(t *target) (string, error) {
	if t.arg.Base == "" {
		return r.call.Dir, nil
	}
	b, ok := r.targets[t.arg.Base]
	if !ok {
		return r.call.Dir, nil
	}
	if err := r.resolve(b); err != nil {
		return "", err
	}
	switch s := b.subject.(type) {
	case pathSubject:
		return s.path, nil
	case repoSubject:
		return s.dir.path, nil
	}
	return "", bad("", "is relative to %s in the annotation, which is no path", t.arg.Base)
}

// repoOf returns the repository that the Base of t names.
func (r *resolver) repoOf(t *target) (repoSubject, error) {
	b, ok := r.targets[t.arg.Base]
	if !ok {
		return repoSubject{}, bad("", "belongs to the repository at %q in the annotation, and there is none in this call", t.arg.Base)
	}
	if err := r.resolve(b); err != nil {
		return repoSubject{}, err
	}
	s, ok := b.subject.(repoSubject)
	if !ok {
		return repoSubject{}, bad("", "belongs to %s in the annotation, which is no repository", t.arg.Base)
	}
	return s, nil
}

// plain is a subject that names nothing a policy could protect.
type plain struct{}

func (plain) on(k act.Kind, _ bool) ([]act.Effect, error) { return nil, noEffect(k, "text") }
func (plain) real() (string, bool)                        { return "", false }

func noEffect(k act.Kind, on string) error {
	return bad("", "has the effect %q in the annotation, which is not on a %s", k, on)
}

// A named subject is one that is its canonical text and no more.
type named struct {
	kind act.ResourceType
	text string
}

func newNamed(kind act.ResourceType, canonical func(string) (string, error), text string) (subject, error) {
	c, err := canonical(text)
	return named{kind, c}, err
}

func (n named) on(k act.Kind, tree bool) ([]act.Effect, error) {
	if k.On() != n.kind {
		return nil, noEffect(k, string(n.kind))
	}
	return one(k, act.Resource{Type: n.kind, Text: n.text}, tree), nil
}

// real is the canonical text, except of a package: it gained its registry.
func (n named) real() (string, bool) { return n.text, n.kind != act.Package }

func one(k act.Kind, r act.Resource, tree bool) []act.Effect {
	return []act.Effect{{Kind: k, Resource: r, Tree: tree}}
}

// checkPattern refuses globs and regular expressions that could leave the
// directory they are applied beneath, or be read as an option.
func checkPattern(s string) error {
	switch {
	case strings.HasPrefix(s, "/"), strings.HasPrefix(s, "~"):
		return bad("write it relative to the path of this call", "is not relative")
	case strings.HasPrefix(s, "-"):
		return bad(`begin it with "./" or "[-]"`, "could be read as an option")
	case hasControl(s):
		return bad("", "holds control characters")
	}
	plain := weburl.Unescape(weburl.Unescape(s)) // it may become a part of an address
	for part := range strings.FieldsFuncSeq(plain, func(r rune) bool { return strings.ContainsRune(`/\,{}`, r) }) {
		if part == ".." {
			return bad("", `holds "..", which leads out of the path of this call`)
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }) >= 0
}

// fillTemplate returns the effect on the URL that im.On makes of the arguments.
// For a kind on a Remote it is the URL of one, and what follows "#" a branch.
func (r *resolver) fillTemplate(im policy.Implied) (act.Effect, error) {
	if on := im.Kind.On(); on != act.URL && on != act.Host && on != act.Remote {
		return act.Effect{}, valueError(noEffect(im.Kind, "URL"), "", im.On)
	}
	address, branch, _ := strings.Cut(im.On, "#")
	address, err := r.fill(address, func(pointer string) (string, error) {
		v, err := r.templateValue(pointer)
		if im.Fold {
			v = strings.ToLower(v)
		}
		return weburl.Escape(v), err
	})
	if err != nil {
		return act.Effect{}, err
	}
	branch, err = r.fill(branch, func(pointer string) (string, error) {
		v := r.args.text(pointer)
		if err := checkBranch(strings.TrimPrefix(v, "refs/heads/")); err != nil {
			return "", valueError(err, pointer, v)
		}
		return strings.TrimPrefix(v, "refs/heads/"), nil
	})
	if err != nil {
		return act.Effect{}, err
	}
	if im.Kind.On() == act.Remote && branch != "" {
		address += "#" + branch
	}
	e, err := r.view.effect(im.Kind, address)
	if err != nil {
		return act.Effect{}, valueError(err, "", address)
	}
	e.Tree = im.Tree
	return e, nil
}

// fill replaces each pointer in braces by its value.
func (r *resolver) fill(template string, value func(pointer string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(template, "{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		pointer, rest, ok := strings.Cut(after, "}")
		if !ok {
			return "", &Error{Value: template, Why: "is no template: a brace is not closed"}
		}
		v, err := value(pointer)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		template = rest
	}
}

// templateValue returns an argument as one segment of a URL path.
func (r *resolver) templateValue(pointer string) (string, error) {
	i, ok := r.args.at[pointer]
	if !ok || r.args.leaves[i].text == "" {
		return "", &Error{Pointer: pointer, Why: "is missing, and the address of this call depends on it"}
	}
	v := r.args.leaves[i].text
	if v == "." || v == ".." || hasControl(v) || strings.ContainsAny(v, `/\`) {
		return "", &Error{
			Pointer: pointer, Value: v, Why: "is not one name",
			Hint: fmt.Sprintf("%s is one part of an address", pointer),
		}
	}
	return v, nil
}
