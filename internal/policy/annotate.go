package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// roleTypes are the roles, each with the types of resource that effects of an
// argument with it can be on.
var roleTypes = map[Role][]act.ResourceType{
	RolePlain:     nil,
	RolePath:      {act.Path, act.Repo},
	RolePattern:   nil,
	RoleURL:       {act.URL, act.Host},
	RoleHost:      {act.Host},
	RoleRepo:      {act.Repo, act.Path},
	RoleRemote:    {act.Remote},
	RoleRef:       nil,
	RoleCommand:   {act.Command},
	RoleRecipient: {act.Recipient},
	RolePackage:   {act.Package},
	RoleSecret:    {act.Secret},
	RoleMemory:    {act.Memory},
	RoleURI:       {act.Path, act.URL},
}

var labels = []act.Label{act.LabelUntrusted, act.LabelPrivate, act.LabelSecret}

// ParseAnnotation reads the annotation in data; name is that of its file. It
// refuses unknown members, roles, kinds, labels and pointers that lead nowhere,
// naming the file, the line or the tool, and the nearest valid word.
func ParseAnnotation(name string, data []byte) (*Annotation, error) {
	var a Annotation
	if err := strictjson.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &a, nil
}

func (a *Annotation) check() error {
	if !wellFormedID(a.Name) || a.Name == "" {
		return fmt.Errorf("the name %q is not of letters, digits, dots, underscores and hyphens", clip(a.Name))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Tools)) {
		t := a.Tools[name]
		if name == "" {
			return errors.New("a tool without a name")
		}
		if _, ok := methods[name]; IsMethod(name) && !ok && !strings.HasPrefix(name, PromptTool) {
			return unknown("method", name, Methods())
		}
		if err := t.check(); err != nil {
			return fmt.Errorf("tool %q: %w", clip(name), err)
		}
	}
	return nil
}

func (t *ToolAnnotation) check() error {
	for _, p := range t.Pins {
		if len(p) != 64 || strings.Trim(p, "0123456789abcdef") != "" {
			return fmt.Errorf("the pin %q is no hash: 64 hexadecimal digits in lower case", clip(p))
		}
	}
	if t.Group != "" && !slices.Contains(groupsOfCalls, t.Group) {
		return unknown("group", t.Group, groupsOfCalls)
	}
	for _, l := range slices.Concat(t.Sets, t.Reads) {
		if !slices.Contains(labels, l) {
			return unknown("label", l, labels)
		}
	}
	for _, pointer := range slices.Sorted(maps.Keys(t.Args)) {
		if err := checkPointer(pointer); err != nil {
			return err
		}
		if err := t.checkArg(t.Args[pointer]); err != nil {
			return fmt.Errorf("argument %s: %w", pointer, err)
		}
	}
	for i, e := range t.Effects {
		if err := t.checkImplied(e); err != nil {
			return fmt.Errorf("effect %d: %w", i+1, err)
		}
	}
	return nil
}

func (t *ToolAnnotation) checkArg(a Arg) error {
	on, ok := roleTypes[a.Role]
	if !ok {
		return unknown("role", a.Role, slices.Sorted(maps.Keys(roleTypes)))
	}
	if err := checkEffects(a.Effects, on); err != nil {
		return err
	}
	for _, w := range a.When {
		if err := checkEffects(w.Effects, on); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	refs := []struct {
		member, pointer string
		role            Role
		of              []Role
	}{
		{"base", a.Base, "", []Role{RolePath, RoleRepo}},
		{"ref", a.Ref, RoleRemote, []Role{RoleRef}},
		{"ref_to", a.RefTo, RoleRemote, []Role{RoleRef}},
	}
	for _, r := range refs {
		if r.pointer == "" {
			continue
		}
		if r.role != "" && a.Role != r.role {
			return fmt.Errorf("only a %s has %q", r.role, r.member)
		}
		if !slices.Contains(r.of, t.Args[r.pointer].Role) {
			return fmt.Errorf("%q is %q, which is no argument with the role %v", r.member, clip(r.pointer), r.of)
		}
	}
	if (a.Registry != "") != (a.Role == RolePackage) {
		return errors.New(`"registry" goes with the role package`)
	}
	if a.Push && a.Role != RoleRemote {
		return errors.New(`"push" goes with the role remote`)
	}
	return nil
}

// checkEffects checks that kinds are known, and on one of types.
func checkEffects(kinds []act.Kind, types []act.ResourceType) error {
	for _, k := range kinds {
		if !k.Known() {
			return unknown("kind of effect", k, act.Kinds())
		}
		if !slices.Contains(types, k.On()) {
			return fmt.Errorf("%s is on a %s, and the role names none", k, k.On())
		}
	}
	return nil
}

// check checks a condition and those it is joined with.
func (w When) check() error {
	if err := checkPointer(w.Arg); err != nil {
		return err
	}
	if strings.Contains(w.Arg, "*") {
		return fmt.Errorf("the condition on %s is not on one argument", w.Arg)
	}
	tests := 0
	for _, given := range []bool{w.Equals != nil, w.In != nil, w.Is != ""} {
		if given {
			tests++
		}
	}
	if tests != 1 {
		return fmt.Errorf(`the condition on %s has not exactly one of "equals", "in", "is"`, w.Arg)
	}
	if is := []string{"present", "absent", "truthy", "falsy", "path"}; w.Is != "" && !slices.Contains(is, w.Is) {
		return unknown("test", w.Is, is)
	}
	for _, and := range w.And {
		if err := and.check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *ToolAnnotation) checkImplied(e Implied) error {
	for _, w := range e.When {
		if err := w.check(); err != nil {
			return err
		}
	}
	if strings.HasPrefix(e.On, "/") {
		a, ok := t.Args[e.On]
		if !ok {
			return fmt.Errorf("it is on %q, which is no argument", clip(e.On))
		}
		return checkEffects([]act.Kind{e.Kind}, roleTypes[a.Role])
	}
	if err := checkEffects([]act.Kind{e.Kind}, []act.ResourceType{act.URL, act.Host, act.Remote}); err != nil {
		return err
	}
	if !strings.HasPrefix(e.On, "https://") && !strings.HasPrefix(e.On, "http://") {
		return fmt.Errorf("it is on %q, which is neither an argument nor a URL", clip(e.On))
	}
	for rest := e.On; ; {
		_, after, open := strings.Cut(rest, "{")
		if !open {
			return nil
		}
		pointer, tail, closed := strings.Cut(after, "}")
		if _, ok := t.Args[pointer]; !ok || !closed {
			return fmt.Errorf("{%s} in its URL is no argument", clip(pointer))
		}
		rest = tail
	}
}

// checkPointer checks a JSON pointer (RFC 6901) below the outermost object, in
// which a whole token * stands for every element or member.
func checkPointer(p string) error {
	if len(p) < 2 || p[0] != '/' {
		return fmt.Errorf(`%q is no JSON pointer like "/path" or "/files/*/path"`, clip(p))
	}
	for token := range strings.SplitSeq(p[1:], "/") {
		rest := strings.NewReplacer("~0", "", "~1", "", "~2", "").Replace(token)
		if token == "" || strings.Contains(rest, "~") || token != "*" && strings.Contains(token, "*") {
			return fmt.Errorf("%q is no JSON pointer: the token %q is not one (~0 is ~, ~1 is /, ~2 is *)", clip(p), clip(token))
		}
	}
	return nil
}

// unknown is the error for a word that is none of valid.
func unknown[T ~string](what string, word T, valid []T) error {
	var words []string
	for _, v := range valid {
		words = append(words, string(v))
	}
	if near := strictjson.Nearest(string(word), words); near != "" {
		return fmt.Errorf("there is no %s %q; did you mean %q?", what, clip(string(word)), near)
	}
	return fmt.Errorf("there is no %s %q; known are %s", what, clip(string(word)), strings.Join(words, ", "))
}
