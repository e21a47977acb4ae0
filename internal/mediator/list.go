package mediator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/strictjson"
)

var emptyList = []byte(`{"tools":[]}`)

// A catalogue is what is known of the tools of one server. Its fields are
// guarded by server.mu.
type catalogue struct {
	raw     []byte    // as the server sent them: {"tools":[…]}
	visible []tool    // what the last decision left
	fresh   time.Time // until then, visible may be shown once without another decision
	version int       // counts changes of raw; 0 before the first
	missed  bool      // a list was shown without this server, as it was not up yet
}

// A tool is one definition that the client may see.
type tool struct {
	name string
	def  []byte // the bytes of the reply, but for the name
}

// fetch reads all pages of a list of a server into one, whose elements are in the member
// field. Definitions are strict JSON: they are shown to the agent, and what they mean must
// not depend on who reads them.
func fetch(ctx context.Context, l *link, method, field string) ([]byte, error) {
	list := []byte(`{"` + field + `":[`)
	params, count, most := []byte(`{}`), 0, maxTools
	if field != "tools" {
		most = maxListed
	}
	for range maxPages {
		a, err := l.ask(ctx, method, params)
		if err != nil {
			return nil, plainly(err)
		}
		defs, err := strictjson.Values(a.body, "/"+field+"/*")
		if err != nil {
			return nil, err
		}
		if count += len(defs); count > most {
			return nil, fmt.Errorf("more than %d %s", most, field)
		}
		for _, d := range defs {
			if list[len(list)-1] != '[' {
				list = append(list, ',')
			}
			list = append(list, d.Raw...)
		}
		if len(list) > strictjson.MaxSize-2 {
			return nil, fmt.Errorf("its definitions take more than %d bytes", strictjson.MaxSize)
		}
		next, ok, err := strictjson.Find(a.body, "/nextCursor")
		if err != nil || !ok || next.Kind == strictjson.Null || string(next.Raw) == `""` {
			return append(list, "]}"...), err
		}
		if next.Kind != strictjson.String {
			return nil, errors.New("its cursor is not a string")
		}
		params = append(append([]byte(`{"cursor":`), next.Raw...), '}')
	}
	return nil, fmt.Errorf("more than %d pages of %s", maxPages, field)
}

// publish has raw decided and makes what is left of it visible. If that differs
// from what the client has seen, the client is told.
func (s *server) publish(ctx context.Context, raw []byte) error {
	body, err := s.decideList(ctx, s.cfg.Name, raw, emptyList)
	if err != nil {
		return err
	}
	visible, err := s.readVisible(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	first := s.tools.version == 0
	news := !sameTools(s.tools.visible, visible)
	if !bytes.Equal(s.tools.raw, raw) {
		s.tools.raw = raw
		s.tools.version++
	}
	s.tools.visible, s.tools.fresh = visible, time.Now().Add(freshFor)
	s.mu.Unlock()
	if news && !first {
		s.m.changed("tools")
	}
	return nil
}

func sameTools(a, b []tool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].def, b[i].def) {
			return false
		}
	}
	return true
}

// readVisible takes the decided list apart and gives each tool its name on the
// wire. A name that two tools share belongs to neither, and names that clients
// choke on are left out; both are reported.
func (s *server) readVisible(body []byte) ([]tool, error) {
	defs, err := strictjson.Values(body, "/tools/*")
	if err != nil {
		return nil, fmt.Errorf("reading what is left of its tools: %w", err)
	}
	count := map[string]int{}
	tools := make([]tool, 0, len(defs))
	for _, d := range defs {
		name, ok, err := strictjson.Find(d.Raw, "/name")
		if err != nil || !ok {
			s.o.Log.Warn("tool without a name", slog.String("server", s.cfg.Name))
			continue
		}
		text, err := name.Text()
		wire := s.m.wireName(s, text)
		if err != nil || !goodToolName(wire) {
			s.o.Log.Warn("tool with a name that clients refuse", slog.String("server", s.cfg.Name), slog.String("tool", clip(text)))
			continue
		}
		count[text]++
		def, err := strictjson.Splice(d.Raw, renamed(name, text, wire))
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool{name: text, def: oneLine(def)})
	}
	unique := tools[:0]
	for _, t := range tools {
		if count[t.name] > 1 {
			s.o.Log.Warn("tools of one name are not shown", slog.String("server", s.cfg.Name), slog.String("tool", clip(t.name)))
			continue
		}
		unique = append(unique, t)
	}
	return unique, nil
}

func renamed(at strictjson.Value, name, wire string) []strictjson.Edit {
	if name == wire {
		return nil
	}
	return []strictjson.Edit{{Start: at.Start, End: at.End, New: quote(wire)}}
}

// goodToolName reports whether name is one of the protocol's: at most 128 of
// A-Z a-z 0-9 _ - and the full stop.
func goodToolName(name string) bool {
	for _, c := range []byte(name) {
		if !isWord(c) && c != '.' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 128
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// list answers a list with one page: what may be seen of every server that is up, in
// the order of the options. Servers still starting are waited for a while; when they come
// later the client is told that the list changed.
func (f *front) list(ctx context.Context, m message, row method) parcel {
	var cursor string
	if v, ok, err := strictjson.Find(m.params.of(m.raw), "/cursor"); m.params.ok() && (err != nil || ok && v.Kind != strictjson.Null) {
		if err == nil {
			cursor, err = v.Text()
		}
		if err != nil {
			return parcel{line: fault(m.id(), codeParams, "refused: a cursor is a string")}
		}
	}
	select {
	case f.lists <- struct{}{}:
	case <-ctx.Done():
		return parcel{} // nobody waits for it
	}
	written := func() { <-f.lists }
	wait, cancel := context.WithTimeout(ctx, f.m.o.ListWait)
	defer cancel()
	parts := make([][]tool, len(f.m.servers))
	var all sync.WaitGroup
	for i, s := range f.m.servers {
		all.Go(func() {
			if row.shown != "tools" {
				parts[i] = s.listed(wait, row, true)
			} else if _, err := s.ready(wait); err == nil || !s.miss() {
				parts[i] = s.show(ctx)
			}
		})
	}
	all.Wait()
	body, err := page(row.shown, cursor, f.m.distinct(row, parts))
	if err != nil {
		return parcel{fault(m.id(), codeParams, "refused: "+err.Error()), written}
	}
	return parcel{response(m.id(), "result", body), written}
}

// Bounds of one page of a list.
const (
	pageEntries = 1000
	pageBytes   = 4 << 20
)

// page returns the result that holds the entries at cursor, "" the first ones, and says
// where to go on. A cursor is only good for the very list that it was given for.
func page(field, cursor string, all []tool) ([]byte, error) {
	sum := sha256.New()
	for _, t := range all {
		sum.Write(t.def)
	}
	which, from := hex.EncodeToString(sum.Sum(nil)[:8]), 0
	if cursor != "" {
		list, at, _ := strings.Cut(cursor, "-")
		n, err := strconv.Atoi(at)
		if err != nil || n < 0 || n > len(all) || list != which {
			return nil, errors.New("the list is another one now, or this is no cursor of it: list again from the start")
		}
		from = n
	}
	body := []byte(`{"` + field + `":[`)
	start := len(body)
	for i, t := range all[from:] {
		if i == pageEntries || i > 0 && len(body)+len(t.def) > pageBytes {
			return fmt.Appendf(body, `],"nextCursor":"%s-%d"}`, which, from+i), nil
		}
		if len(body) > start {
			body = append(body, ',')
		}
		body = append(body, t.def...)
	}
	return append(body, "]}"...), nil
}

// miss notes that a list is shown without this server, unless it has come up by
// now.
func (s *server) miss() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools.missed = s.link == nil || !s.link.up()
	return s.tools.missed
}

// freshFor is how old the decision may be that serves the first list after the
// definitions came.
const freshFor = 10 * time.Second

// show returns what the client may see now. Every list that is shown was decided
// for it.
func (s *server) show(ctx context.Context) []tool {
	s.mu.Lock()
	if time.Now().Before(s.tools.fresh) {
		defer s.mu.Unlock()
		s.tools.fresh = time.Time{}
		return s.tools.visible
	}
	raw := s.tools.raw
	s.mu.Unlock()
	body, err := s.decideList(ctx, s.cfg.Name, raw, emptyList)
	if err == nil {
		var visible []tool
		if visible, err = s.readVisible(body); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if bytes.Equal(s.tools.raw, raw) {
				s.tools.visible = visible
			}
			return visible
		}
	}
	s.o.Log.ErrorContext(ctx, "listing tools", slog.String("server", s.cfg.Name), slog.Any("err", err))
	return nil
}

// refreshing keeps refreshed lists of one server apart. Guarded by server.mu.
type refreshing struct {
	busy, again bool
	last        time.Time
}

// refresh reads the tools of the server again, soon, and once for any number of
// notices that come meanwhile.
func (s *server) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refreshes.busy {
		s.refreshes.again = true
		return
	}
	if s.link == nil || s.ctx.Err() != nil {
		return // it is being started, and its tools are yet to be read
	}
	s.refreshes.busy = true
	l, pause := s.link, s.o.RefreshEvery-time.Since(s.refreshes.last)
	s.owned.Go(func() { s.refreshLoop(l, pause) })
}

func (s *server) refreshLoop(l *link, pause time.Duration) {
	for sleep(s.ctx, pause) {
		ctx, cancel := context.WithTimeout(s.ctx, s.o.StartTimeout)
		raw, err := fetch(ctx, l, "tools/list", "tools")
		if err == nil {
			err = s.republish(ctx, raw)
		}
		cancel()
		if err != nil {
			s.o.Log.Warn("refreshing tools", slog.String("server", s.cfg.Name), slog.Any("err", err))
		}
		s.mu.Lock()
		s.refreshes.last = time.Now()
		again := s.refreshes.again && l.up()
		s.refreshes.again = false
		if !again {
			s.refreshes.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		pause = s.o.RefreshEvery
	}
	s.mu.Lock()
	s.refreshes.busy = false
	s.mu.Unlock()
}

// republish publishes raw unless it is what is known already, and tells clients in any
// case: the server said that they should look.
func (s *server) republish(ctx context.Context, raw []byte) error {
	s.mu.Lock()
	same := bytes.Equal(s.tools.raw, raw)
	visible := s.tools.visible
	s.mu.Unlock()
	if !same {
		if err := s.publish(ctx, raw); err != nil {
			return err
		}
	}
	s.mu.Lock()
	told := !sameTools(s.tools.visible, visible)
	s.mu.Unlock()
	if !told { // the server says that there is something, which the client may not see yet
		s.m.changed("tools")
	}
	return nil
}
