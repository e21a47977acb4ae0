package resolve

import "ringfence/internal/act"

// A pathSubject is a place in the file system.
type pathSubject struct {
	view View
	place
}

// real is the real path. A link that is itself deleted or moved is dispatched as
// its own path instead, see splice.
func (p pathSubject) real() (string, bool) { return p.path, true }

// on returns effects of kind k at the place. Create and overwrite are told apart
// by what is there. What is deleted or moved is judged both as the link that was
// named and as what the link leads to, because servers differ in which they take.
// A kind on a Repo means the repository that will be made here.
func (p pathSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	switch k.On() {
	case act.Repo:
		return one(k, p.view.repoResource(p.path, true), tree), nil
	case act.Path:
	default:
		return nil, noEffect(k, "path")
	}
	switch {
	case k == act.Create && p.exists && (tree || !p.dir()):
		k = act.Overwrite
	case k == act.Overwrite && !p.exists:
		k = act.Create
	}
	if k != act.Delete && k != act.Move {
		return one(k, p.resource(k, tree), tree), nil
	}
	tree = tree || p.dir()
	effects := one(k, p.resource(k, tree), tree)
	if p.link != "" {
		at := pathSubject{p.view, place{path: p.link, exists: true, info: p.info}}
		effects = append(effects, act.Effect{Kind: k, Resource: at.resource(k, false)})
	}
	return effects, nil
}

// factHardlinked is true of a Path that is changed and has another name, so that
// the change shows somewhere else too; absent otherwise.
const factHardlinked = "hardlinked"

// resource returns p with its facts.
func (p pathSubject) resource(k act.Kind, tree bool) act.Resource {
	class := p.view.classOfPath(p.place, k, tree)
	if class == "" && p.hardlinked(k) {
		class = classLater // its other name may be one of those
	}
	return p.classified(k, class)
}

// hardlinked reports whether k changes something that has another name.
func (p pathSubject) hardlinked(k act.Kind) bool {
	return k.In(act.Mutate) && p.exists && p.info.Mode.IsRegular() && p.info.Links > 1
}

// classified returns p with its facts and that class, "" for none.
func (p pathSubject) classified(k act.Kind, class string) act.Resource {
	facts := map[string]any{act.FactExists: p.exists}
	if p.hardlinked(k) {
		facts[factHardlinked] = true
	}
	if class != "" {
		facts[act.FactClass] = class
	}
	return act.Resource{Type: act.Path, Text: p.path, Facts: facts}
}
