package resolve

import (
	"encoding/json"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// Effect returns the effect of kind k on what text names, for effects that no
// tool call names: the text is as a person or a client writes it, relative paths
// are relative to the workspace. The kind stays as it is, whatever exists.
// Errors are [*Error]s.
func (v View) Effect(k act.Kind, text string) (act.Effect, error) {
	if !k.Known() {
		return act.Effect{}, &Error{Value: string(k), Why: "is no kind of effect", Hint: "known are " + kindNames()}
	}
	e, err := v.effect(k, text)
	if err != nil {
		return act.Effect{}, valueError(err, "", text)
	}
	return e, nil
}

func kindNames() string {
	var names []string
	for _, k := range act.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, " ")
}

func (v View) effect(k act.Kind, text string) (act.Effect, error) {
	switch k.On() {
	case act.Path:
		p, err := v.place(text, v.Workspace)
		if err != nil {
			return act.Effect{}, err
		}
		tree := (k == act.Delete || k == act.Move) && p.dir()
		if p.link != "" && (k == act.Delete || k == act.Move) {
			p, tree = place{path: p.link, exists: true, info: p.info}, false
		}
		return act.Effect{Kind: k, Resource: pathSubject{v, p}.resource(k, tree), Tree: tree}, nil
	case act.Repo:
		s, err := v.repo(strings.TrimPrefix(text, "repo:"), v.Workspace)
		return first(k, s, err)
	case act.Remote:
		return v.namedRemote(k, text)
	case act.URL:
		u, err := parseURL(text)
		return first(k, urlSubject{u}, err)
	case act.Host:
		return namedHost(k, text)
	case act.Command:
		return v.namedCommand(text)
	case act.Package:
		registry, name, ok := strings.Cut(text, ":")
		if !ok {
			return act.Effect{}, bad(`write it with its registry, as in "npm:left-pad@1.3.0"`, "names no registry")
		}
		c, err := canonicalPackage(registry, name)
		return first(k, named{act.Package, c}, err)
	case act.Recipient:
		c, err := canonicalRecipient(text)
		return first(k, named{act.Recipient, c}, err)
	default:
		c, err := canonicalName(text)
		return first(k, named{k.On(), c}, err)
	}
}

// first returns the first effect of kind k on s.
func first(k act.Kind, s subject, err error) (act.Effect, error) {
	if err != nil {
		return act.Effect{}, err
	}
	got, err := s.on(k, false)
	if err != nil {
		return act.Effect{}, err
	}
	return got[0], nil
}

// namedHost reads a host with or without port, or the URL of one.
func namedHost(k act.Kind, text string) (act.Effect, error) {
	if strings.Contains(text, "://") {
		u, err := weburl.Parse(text)
		if err != nil {
			return act.Effect{}, bad("", "%s", err)
		}
		return first(k, hostSubject{u.Host, u.Port}, nil)
	}
	h, port, err := weburl.ParseHostPort(text)
	if err != nil {
		return act.Effect{}, bad("", "%s", err)
	}
	return first(k, hostSubject{h, port}, nil)
}

// namedCommand reads an argv as JSON, or a command line that is one command.
func (v View) namedCommand(text string) (act.Effect, error) {
	var argv []string
	if strings.HasPrefix(strings.TrimSpace(text), "[") && json.Unmarshal([]byte(text), &argv) == nil {
		effects, err := v.argv(argv, v.Workspace)
		return only(effects, err)
	}
	line, err := v.commandLine(text, v.Workspace)
	return only(line.effects, err)
}

// only returns the one execute effect among effects, or that there are more.
func only(effects []act.Effect, err error) (act.Effect, error) {
	if err != nil {
		return act.Effect{}, err
	}
	if len(effects) != 1 || effects[0].Kind != act.Execute {
		return act.Effect{}, bad("name one effect at a time", "does more than run one program")
	}
	return effects[0], nil
}
