package mediator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

// maxListed bounds the prompts, resources or templates of one server.
const maxListed = 10_000

// A showing is what may be seen of one list of a server, the list of tools aside. Its
// fields are guarded by server.mu.
type showing struct {
	link    *link
	entries []tool // by the name or the URI that the server knows them by
	stale   bool   // the server said that the list has changed
}

// identifies is the member by which the entries of a list are told apart.
var identifies = map[string]string{"prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}

// has reports whether the newest incarnation of the server declared a capability.
func (s *server) has(pointer string) bool {
	s.mu.Lock()
	capabilities := s.offer.capabilities
	s.mu.Unlock()
	if capabilities == nil {
		return false
	}
	v, ok, err := strictjson.Find(capabilities, pointer)
	return err == nil && ok && v.Kind != strictjson.Null && v.Kind != strictjson.False
}

// capabilities is what we offer to clients of an era: what the servers do, once all of them
// have been up, and until then whatever they might. Tasks of servers of the other era are
// not offered: see [server.tasks].
func (m *Mediator) capabilities(era eras) []byte {
	b := []byte(`{"tools":{"listChanged":true}`)
	for _, c := range []struct{ pointer, offer string }{
		{"/prompts", `,"prompts":{"listChanged":true}`},
		{"/resources", `,"resources":{"subscribe":true,"listChanged":true}`},
		{"/completions", `,"completions":{}`},
		{"/logging", `,"logging":{}`},
	} {
		if slices.ContainsFunc(m.servers, func(s *server) bool { return s.unseen() || s.has(c.pointer) }) {
			b = append(b, c.offer...)
		}
	}
	if slices.ContainsFunc(m.servers, func(s *server) bool { return s.tasks(era) }) {
		b = append(b, offersTasks[era]...)
	}
	return append(b, '}')
}

// unseen reports whether the server has never been up.
func (s *server) unseen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer.protocol == ""
}

// offers reports whether the server has lists like row.
func (s *server) offers(row method) bool {
	if row.shown == "prompts" {
		return s.has("/prompts")
	}
	return s.has("/resources")
}

// listed returns what may be seen of a list of the server, as it was decided last or, if
// fresh is set, as it is decided now. A server that is not up or cannot list shows nothing.
func (s *server) listed(ctx context.Context, row method, fresh bool) []tool {
	at, err := s.ready(ctx)
	if err != nil || !s.offers(row) {
		return nil
	}
	s.mu.Lock()
	if known := s.shown[row.name]; !fresh && known != nil && known.link == at.link && !known.stale {
		defer s.mu.Unlock()
		return known.entries
	}
	if s.shown == nil {
		s.shown = map[string]*showing{}
	}
	now := &showing{link: at.link} // what changes from now on makes it stale
	s.shown[row.name] = now
	s.mu.Unlock()
	empty := []byte(`{"` + row.shown + `":[]}`)
	body, err := fetch(ctx, at.link, row.name, row.shown)
	if err == nil {
		body, err = s.decideList(ctx, s.cfg.Name+"."+row.name, body, empty)
	}
	if err == nil {
		var entries []tool
		if entries, err = s.readEntries(row, body); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			now.entries = entries
			return entries
		}
	}
	s.o.Log.WarnContext(ctx, "listing", slog.String("server", s.cfg.Name), slog.String("list", row.name), slog.Any("err", err))
	s.mu.Lock()
	defer s.mu.Unlock()
	now.stale = now.stale || !errors.Is(err, errAnswer) // it will say the same again
	return nil
}

// readEntries takes a decided list apart. Prompts get their names on the wire, as tools
// do; resources keep their URIs.
func (s *server) readEntries(row method, body []byte) ([]tool, error) {
	defs, err := strictjson.Values(body, "/"+row.shown+"/*")
	if err != nil {
		return nil, err
	}
	entries := make([]tool, 0, len(defs))
	for _, d := range defs {
		id, ok, err := strictjson.Find(d.Raw, "/"+identifies[row.shown])
		text, terr := id.Text()
		if err != nil || !ok || terr != nil {
			s.o.Log.Warn("entry of a list without a name", slog.String("server", s.cfg.Name), slog.String("list", row.name))
			continue
		}
		def := d.Raw
		if row.shown == "prompts" {
			wire := s.m.wireName(s, text)
			if !goodToolName(wire) {
				s.o.Log.Warn("prompt with a name that clients refuse", slog.String("server", s.cfg.Name), slog.String("prompt", clip(text)))
				continue
			}
			if def, err = strictjson.Splice(d.Raw, renamed(id, text, wire)); err != nil {
				return nil, err
			}
		}
		entries = append(entries, tool{name: text, def: oneLine(def)})
	}
	return entries, nil
}

// distinct joins the lists of all servers. A resource that two servers have is that of the
// first, so that what is listed is what is read.
func (m *Mediator) distinct(row method, parts [][]tool) []tool {
	if row.shown == "tools" || row.shown == "prompts" {
		return slices.Concat(parts...)
	}
	seen := map[string]string{}
	var all []tool
	for i, part := range parts {
		for _, t := range part {
			name := m.servers[i].cfg.Name
			if first, ok := seen[t.name]; ok {
				m.o.Log.Warn("a resource of this URI is listed before, so that of this server is not shown",
					slog.String("server", name), slog.String("first", first), slog.String("uri", clip(t.name)))
				continue
			}
			seen[t.name] = name
			all = append(all, t)
		}
	}
	return all
}

// home returns the server that a URI is read from: the only one, else the first that
// lists it, else the first with a template that it fits. nil if there is none.
func (m *Mediator) home(ctx context.Context, uri string) *server {
	if len(m.servers) == 1 {
		return m.servers[0]
	}
	for _, name := range []string{"resources/list", "resources/templates/list"} {
		row, _ := methodOf(name, inBoth)
		for _, s := range m.servers {
			for _, e := range s.listed(ctx, row, false) {
				if e.name == uri || row.shown == "resourceTemplates" && fits(uri, e.name) {
					return s
				}
			}
		}
	}
	return nil
}

// fits reports whether uri can come of a template (RFC 6570): it has all literal parts of
// it, in order, the first at its start and the last at its end.
func fits(uri, template string) bool {
	rest := uri
	for first := true; ; first = false {
		literal, after, more := strings.Cut(template, "{")
		at := strings.Index(rest, literal)
		switch {
		case !more && first:
			return uri == template
		case !more:
			return strings.HasSuffix(rest, literal)
		case at < 0 || first && at > 0:
			return false
		}
		rest = rest[at+len(literal):]
		if _, template, more = strings.Cut(after, "}"); !more {
			return false
		}
	}
}

// heard takes in what a server says to no request in particular.
func (s *server) heard(l *link, m message) {
	switch m.method {
	case "notifications/prompts/list_changed":
		s.changed("prompts", "prompts/list")
	case "notifications/resources/list_changed":
		s.changed("resources", "resources/list", "resources/templates/list")
	case "notifications/resources/updated":
		s.updated(m)
	case "notifications/tasks/status":
		s.taskChanged(l, m)
	case tellMessage:
		s.logged(l, m)
	}
}

// changed makes lists stale and tells clients, soon, and once for any number of notices
// that come meanwhile.
func (s *server) changed(list string, methods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range methods {
		if known := s.shown[name]; known != nil {
			known.stale = true
		}
	}
	if s.news == nil {
		s.news = map[string]time.Time{}
	}
	now, last := time.Now(), s.news[list]
	if last.After(now) || s.ctx.Err() != nil {
		return // it is told then
	}
	at := now
	if next := last.Add(s.o.RefreshEvery / 8); next.After(now) {
		at = next
	}
	s.news[list] = at
	s.owned.Go(func() {
		if sleep(s.ctx, time.Until(at)) {
			s.m.changed(list)
		}
	})
}

// Bounds of subscriptions to resources.
const (
	maxWatchers = 1000 // of one server, all connections together
	maxUpdates  = 64   // updates of one server that wait to be told
)

// updated tells whoever subscribed to a resource that it is another now. They read the URI
// that they wrote themselves.
func (s *server) updated(m message) {
	v, ok, err := strictjson.Find(m.params.of(m.raw), "/uri")
	uri, terr := v.Text()
	if err != nil || !ok || terr != nil {
		return
	}
	s.mu.Lock()
	fronts := slices.Clone(s.watchers[uri])
	s.mu.Unlock()
	for _, f := range fronts {
		f.updated(uri)
	}
}

// watch notes that f wants to hear of a resource, or no more; false if there is no room.
func (s *server) watch(f *front, uri string, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers == nil {
		s.watchers = map[string][]*front{}
	}
	at := slices.Index(s.watchers[uri], f)
	switch {
	case on && at < 0:
		n := 0
		for _, fronts := range s.watchers {
			n += len(fronts)
		}
		if n >= maxWatchers {
			return false
		}
		s.watchers[uri] = append(s.watchers[uri], f)
	case !on && at >= 0:
		s.watchers[uri] = slices.Delete(s.watchers[uri], at, at+1)
		if len(s.watchers[uri]) == 0 {
			delete(s.watchers, uri)
		}
	}
	return true
}

// rewatch subscribes a new incarnation to what clients have subscribed to, each decided
// again. Who may not any more hears of it no more.
func (s *server) rewatch() {
	s.mu.Lock()
	watchers := maps.Clone(s.watchers)
	s.mu.Unlock()
	for uri, fronts := range watchers {
		for _, f := range slices.Clone(fronts) {
			f.watch(f.ctx, message{}, s, uri, true)
		}
	}
}

// watched reports whether anybody wants to hear of a resource.
func (s *server) watched(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers[uri]) > 0
}

// rootsChanged tells servers that may ask for roots that there are others now.
func (m *Mediator) rootsChanged() {
	for _, s := range m.servers {
		s.mu.Lock()
		l := s.link
		s.mu.Unlock()
		if l != nil && l.up() && l.era() == sessioned && l.declared(askRoots) {
			l.out.offer(notification("notifications/roots/list_changed", nil))
		}
	}
}

// unwatch forgets what f wanted to hear of.
func (s *server) unwatch(f *front) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, fronts := range s.watchers {
		fronts = slices.DeleteFunc(fronts, func(g *front) bool { return g == f })
		if s.watchers[uri] = fronts; len(fronts) == 0 {
			delete(s.watchers, uri)
		}
	}
	if s.idle != nil && s.idle.f == f {
		s.idle = nil
	}
}
