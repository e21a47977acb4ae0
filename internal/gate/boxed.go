package gate

import (
	"reflect"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/session"
)

// A call of a server that starts commands in boxes is decided together with the box that
// it will start, so that a person is asked once. The box is decided on by itself too, when
// its paths are known for certain: what the call was approved for counts there, if the box
// can do nothing that the call does not list.

// boxed adds to a call what its box may change.
func (d *draft) boxed() *refusal {
	if !d.boxes() || !resolve.RunsProgram(d.res.Effects) {
		return nil
	}
	trees := slices.Clone(d.tool.server.Changes)
	for _, e := range d.res.Effects {
		if e.Kind == act.Read && e.Tree {
			trees = append(trees, e.Resource.Text)
		}
	}
	more, err := d.run.View.Changes(trees)
	if err != nil {
		return refuse(act.CodeUnresolved, "%v", err)
	}
	for _, e := range more {
		if !lists(d.res.Effects, e) {
			d.res.Effects = append(d.res.Effects, e)
		}
	}
	return nil
}

// boxes reports whether d is a call that starts a box which is decided on by itself.
func (d *draft) boxes() bool { return d.tool != nil && d.tool.server.Boxes }

func lists(effects []act.Effect, e act.Effect) bool {
	return slices.ContainsFunc(effects, func(o act.Effect) bool { return reflect.DeepEqual(o, e) })
}

// starts is what is kept of an allowed call for the box that it will start.
func (d *draft) starts() *session.Box {
	if !d.boxes() {
		return nil
	}
	return &session.Box{Effects: d.res.Effects, Approved: d.approved}
}

// cover makes what a call was approved for count for d, its box.
func (d *draft) cover() {
	var e resolve.Exec
	if d.req.Verb != act.VerbExec || strictjson.Unmarshal(d.req.Args, &e) != nil || e.Call == "" {
		return
	}
	box := d.run.Session.TakeBox(e.Call)
	if box == nil {
		return
	}
	for _, e := range d.res.Effects {
		if !lists(box.Effects, e) {
			return
		}
	}
	d.approved = slices.Clone(box.Approved)
}
