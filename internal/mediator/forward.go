package mediator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// forward answers a request whose method is in the table and is not one of those that
// the era of the client answers itself. m.method must be such a one; [methodOf] says so.
func (f *front) forward(ctx context.Context, m message) parcel {
	row, ok := methodOf(m.method, inBoth)
	switch {
	case !ok || row.place == placeEra:
		return parcel{line: fault(m.id(), codeMethod, "ringfence does not offer "+clip(m.method))}
	case row.place == placeAll:
		return f.list(ctx, m, row)
	case row.place == placeLevels:
		return f.setLevel(ctx, m, row)
	case row.place == placeTask, row.place == placeHere:
		return f.task(ctx, m, row)
	case m.method == "tools/call":
		return f.call(ctx, m)
	case m.method == "resources/subscribe", m.method == "resources/unsubscribe":
		return f.subscribe(ctx, m, row)
	}
	if uri, ok, err := strictjson.Find(m.params.of(m.raw), "/uri"); ok && err == nil && row.name == "resources/read" {
		if text, err := uri.Text(); err == nil && strings.HasPrefix(text, spillPrefix) {
			return f.readPage(ctx, m, text)
		}
	}
	p, s, err := f.routed(ctx, m, row)
	if err != nil {
		return parcel{line: f.unknown(m, err)}
	}
	if went, err := f.goOn(ctx, m, s); err != nil {
		return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
	} else if &went.raw[0] != &m.raw[0] {
		m = went
		if p, s, err = f.routed(ctx, m, row); err != nil {
			return parcel{line: f.unknown(m, err)}
		}
	}
	c := &call{f: f, m: m, s: s, needs: row.needs}
	c.name, c.args = c.s.cfg.Name+"."+row.name, p.decided(m)
	c.build = func(id int64, args []byte, _ bool) ([]byte, error) { return p.toServer(m, id, args) }
	line := c.answer(ctx)
	return parcel{line, c.free}
}

// routed finds the parts of m and the server that is to answer it.
func (f *front) routed(ctx context.Context, m message, row method) (params, *server, error) {
	p, err := readParams(m, row)
	if err != nil {
		return p, nil, err
	}
	s, err := f.serverOf(ctx, m, row, &p)
	return p, s, err
}

// errNothing says that nothing of that name or URI is known.
var errNothing = errors.New("no server has it")

// codeNotFound is the code of a resource that is not there, until 2025-11-25; later ones
// have codeParams.
const codeNotFound = -32002

// unknown refuses a request whose server could not be found.
func (f *front) unknown(m message, err error) []byte {
	if errors.Is(err, errNothing) && m.method == "resources/read" {
		code := codeNotFound
		if f.passes(m) {
			code = codeParams
		}
		uri, _, _ := strictjson.Find(m.params.of(m.raw), "/uri") // it was read before
		return response(m.id(), "error", faultBody(code, err.Error(), append(append([]byte(`{"uri":`), uri.Raw...), '}')))
	}
	return fault(m.id(), codeParams, "refused: "+err.Error())
}

// serverOf finds the server that is to answer m, and makes p say what that server knows
// things by. What a decision relies on has been listed when it returns.
func (f *front) serverOf(ctx context.Context, m message, row method, p *params) (*server, error) {
	if row.place == placeName {
		return f.ofPrompt(ctx, m, p.member("name"), "")
	}
	if row.place == placeURI {
		uri, err := p.text(m, "uri")
		if err != nil {
			return nil, err
		}
		return f.ofURI(ctx, uri)
	}
	ref := p.member("ref")
	if ref == nil {
		return nil, errors.New("ref is missing")
	}
	raw := ref.at.of(m.raw)
	if uri, ok, err := strictjson.Find(raw, "/uri"); err == nil && ok {
		text, err := uri.Text()
		if err != nil {
			return nil, errors.New("ref.uri is not a string")
		}
		return f.ofURI(ctx, text)
	}
	return f.ofPrompt(ctx, m, ref, "/name")
}

// ofURI finds the server of a resource or a template.
func (f *front) ofURI(ctx context.Context, uri string) (*server, error) {
	s := f.m.home(ctx, uri)
	if s == nil {
		return nil, fmt.Errorf("the resource %s: %w", clip(uri), errNothing)
	}
	return s, nil
}

// ofPrompt finds the server of the prompt whose name stands at pointer in v.
func (f *front) ofPrompt(ctx context.Context, m message, v *param, pointer string) (*server, error) {
	if v == nil {
		return nil, errors.New("the name is missing")
	}
	raw := v.at.of(m.raw)
	at := strictjson.Value{Raw: raw, End: len(raw)}
	if pointer != "" {
		var ok bool
		var err error
		if at, ok, err = strictjson.Find(raw, pointer); err != nil || !ok {
			return nil, errors.New("the name is missing")
		}
	}
	wire, err := strictjson.Text(at.Raw)
	if err != nil {
		return nil, errors.New("the name is not a string")
	}
	s, own := f.m.route(wire)
	if s == nil {
		return nil, fmt.Errorf("the prompt %s: %w; with several servers prompts are named server__prompt", clip(wire), errNothing)
	}
	if v.own, err = strictjson.Splice(raw, renamed(at, wire, own)); err != nil {
		return nil, err
	}
	list, _ := methodOf("prompts/list", inBoth)
	s.listed(ctx, list, false) // prompts are decided before the requests that rely on them
	return s, nil
}

// subscribe answers resources/subscribe and its opposite. It is decided like reading, and
// sent to the server where nobody else has subscribed.
func (f *front) subscribe(ctx context.Context, m message, row method) parcel {
	p, err := readParams(m, row)
	var uri string
	if err == nil {
		uri, err = p.text(m, "uri")
	}
	var s *server
	if err == nil {
		s, err = f.ofURI(ctx, uri)
	}
	if err != nil {
		return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
	}
	on := strings.HasSuffix(row.name, "/subscribe")
	if on { // before the server can say anything
		f.wants(uri, true)
	}
	line := f.watch(ctx, m, s, uri, on)
	if !on || codeOf(m.id(), line) != 0 {
		f.wants(uri, false)
	}
	return parcel{line: line}
}

// wants notes whether the session is subscribed to a resource.
func (f *front) wants(uri string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watched == nil {
		f.watched = map[string]bool{}
	}
	if delete(f.watched, uri); on {
		f.watched[uri] = true
	}
}

// watch decides whether f may hear of a resource of s, or no more, and has the server told.
// It returns the line that answers m.
func (f *front) watch(ctx context.Context, m message, s *server, uri string, on bool) []byte {
	name := "resources/unsubscribe"
	if on {
		name = "resources/subscribe"
	}
	c := &call{f: f, m: m, s: s, needs: "/resources/subscribe", name: s.cfg.Name + "." + name, args: append(append([]byte(`{"uri":`), quote(uri)...), '}')}
	c.build = func(id int64, args []byte, _ bool) ([]byte, error) { return ownRequest(id, name, args), nil }
	_, _ = s.ready(ctx) // else it would be subscribed when it is up as well; c says why it is not
	switch {
	case on && !s.watch(f, uri, true):
		return fault(m.id(), codeBusy, "too many subscriptions")
	case !on && len(f.watching(uri)) == 0:
		s.watch(f, uri, false)
	}
	if !on && s.watched(uri) {
		c.instead = []byte(`{}`)
	}
	line := c.answer(ctx)
	if c.free != nil {
		c.free()
	}
	if on && codeOf(m.id(), line) != 0 && len(f.watching(uri)) == 0 {
		s.watch(f, uri, false)
	}
	return line
}

// updated tells the client of a session, and whoever listens for it, that a resource is
// another now.
func (f *front) updated(uri string) {
	params := append([]byte(`{"uri":`), quote(uri)...)
	f.mu.Lock()
	session := f.watched[uri]
	f.mu.Unlock()
	if session {
		f.out.Tell(notification("notifications/resources/updated", append(slices.Clip(params), '}')))
	}
	for _, l := range f.watching(uri) {
		l.tell("notifications/resources/updated", params)
	}
}
