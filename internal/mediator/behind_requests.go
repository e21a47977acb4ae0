package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

// What a request says of its client in _meta, beside its version and capabilities.
const (
	metaPrefix = "io.modelcontextprotocol/"
	metaClient = metaPrefix + "clientInfo"
	metaLevel  = metaPrefix + "logLevel"
)

// maxRounds bounds how often one request is sent again with what the server asked
// for. The era sets no bound; two are usual.
const maxRounds = 10

// maxInputs bounds what a server may ask for at once.
const maxInputs = 16

// alone is what a link needs for a server of this era.
type alone struct {
	version string // the revision
	client  []byte // who we are: a JSON object
	level   []byte // from which level on it should log, a JSON string; nil is not at all
}

// open asks the server what it is. Nothing of it stays at the server.
func (requests) open(ctx context.Context, l *link, version string) (offer, error) {
	me := &alone{version: requestVersions[0], client: append(append([]byte(`{"name":"ringfence","version":`), quote(version)...), '}')}
	a, err := me.discover(ctx, l)
	if err == nil && a.fault && me.agree(a.body) {
		a, err = me.discover(ctx, l)
	}
	if err != nil {
		return offer{}, fmt.Errorf("opening: %w", plainly(err))
	}
	if a.fault {
		return offer{}, fmt.Errorf("opening: server/discover was answered with the error %s", clip(string(a.body)))
	}
	versions, err := strictjson.Values(a.body, "/supportedVersions/*")
	if err != nil {
		return offer{}, fmt.Errorf("opening: reading its answer: %w", err)
	}
	spoken := func(v strictjson.Value) bool { text, err := v.Text(); return err == nil && text == me.version }
	if !slices.ContainsFunc(versions, spoken) {
		return offer{}, errors.New("opening: it does not speak " + strings.Join(requestVersions, ", "))
	}
	o := offer{protocol: me.version}
	if err := o.read(a.body); err != nil {
		return offer{}, fmt.Errorf("opening: %w", err)
	}
	l.mu.Lock()
	l.alone = me
	l.mu.Unlock()
	l.listenTo(o)
	return o, nil
}

// discover asks a server what it is.
func (a *alone) discover(ctx context.Context, l *link) (answer, error) {
	r, err := l.send(ctx, errand{}, func(id int64) ([]byte, error) { return a.dress(plain(id, "server/discover", []byte(`{}`)), nil, nil) })
	if err == nil {
		r.free()
	}
	return r, err
}

// agree takes the newest revision that a server, which refused another, says it has. It
// is false if the error is none of that kind, or there is no such revision.
func (a *alone) agree(fault []byte) bool {
	code, ok, err := strictjson.Find(fault, "/code")
	if err != nil || !ok || string(code.Raw) != strconv.Itoa(codeUnsupported) {
		return false
	}
	theirs, err := strictjson.Values(fault, "/data/supported/*")
	if err != nil {
		return false
	}
	for _, ours := range requestVersions {
		if slices.ContainsFunc(theirs, func(v strictjson.Value) bool { text, err := v.Text(); return err == nil && text == ours }) {
			a.version = ours
			return true
		}
	}
	return false
}

// longestTTL bounds how long a list is taken for fresh because its server says so.
const longestTTL = time.Hour

// date takes in how long the list of tools body is fresh, where the server does not tell
// of changes.
func (l *link) date(body []byte, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alone == nil || l.tells {
		return
	}
	v, ok, err := strictjson.Find(body, "/ttlMs")
	ms, perr := strconv.ParseUint(string(v.Raw), 10, 32)
	if err != nil || perr != nil || !ok {
		return
	}
	l.ttl = now.Add(min(time.Duration(ms)*time.Millisecond, longestTTL))
}

// outdated reports whether the list of tools should be read again.
func (l *link) outdated(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ttl.IsZero() && now.After(l.ttl)
}

// dress returns a request of the mediator as the era has it: with what its _meta must
// say, and with answers to what the server asked for, if more is not nil. Other
// members of _meta stay. offers may be nil: the client can be asked nothing.
func (a *alone) dress(line, offers []byte, more *inputs) ([]byte, error) {
	if offers == nil {
		offers = []byte(`{}`)
	}
	meta := []pair{{metaVersion, quote(a.version)}, {metaClient, a.client}, {metaCapabilities, offers}}
	if a.level != nil {
		meta = append(meta, pair{metaLevel, a.level})
	}
	var params []pair
	if more != nil {
		params = append(params, pair{"inputResponses", more.responses}, pair{"requestState", more.state})
	}
	return withMeta(line, params, meta)
}

// undress returns a request without what only the era of requests says in _meta.
func undress(line []byte) ([]byte, error) {
	return withMeta(line, nil, []pair{{metaVersion, nil}, {metaClient, nil}, {metaCapabilities, nil}, {metaLevel, nil}})
}

// A pair is a member that an object is to have; without a value it is to have none.
type pair struct {
	name  string
	value []byte
}

// withMeta sets members of params and of params._meta in a line of ours.
func withMeta(line []byte, params, meta []pair) ([]byte, error) {
	limits := strictjson.Limits{Size: len(line), Depth: resultDepth}
	top, err := strictjson.Envelope(line, limits)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(top, func(m strictjson.Member) bool { return m.Name == "params" })
	if i < 0 && params == nil && !slices.ContainsFunc(meta, func(p pair) bool { return p.value != nil }) {
		return line, nil
	}
	if i < 0 { // a request of this era has them by now
		return nil, errors.New("a request without params")
	}
	at := span{top[i].Start, top[i].End}
	inner, err := strictjson.Envelope(at.of(line), limits)
	if err != nil {
		return nil, err
	}
	object := []byte(`{}`)
	for _, m := range inner {
		if m.Name == "_meta" {
			object = at.of(line)[m.Start:m.End]
		}
	}
	changed, err := setMembers(object, meta)
	if err != nil {
		return nil, err
	}
	if string(changed) == "{}" && string(object) != "{}" {
		changed = nil
	}
	if changed == nil || string(changed) != "{}" {
		params = append(params, pair{"_meta", changed})
	}
	out, err := setMembers(at.of(line), params)
	if err != nil {
		return nil, err
	}
	return strictjson.Splice(line, []strictjson.Edit{{Start: at.start, End: at.end, New: out}})
}

// setMembers returns the object raw with set in it. All other bytes stay, but for the
// commas beside what is taken out.
func setMembers(raw []byte, set []pair) ([]byte, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("not an object")
	}
	members, err := strictjson.Envelope(raw, strictjson.Limits{Size: len(raw), Depth: resultDepth})
	if err != nil {
		return nil, err
	}
	var edits []strictjson.Edit
	var gone []bool
	left := len(members)
	seen := map[string]bool{}
	for _, m := range members {
		j := slices.IndexFunc(set, func(p pair) bool { return p.name == m.Name })
		out := j >= 0 && set[j].value == nil
		gone = append(gone, out)
		if out {
			left--
		} else if j >= 0 {
			edits = append(edits, strictjson.Edit{Start: m.Start, End: m.End, New: set[j].value})
		}
		seen[m.Name] = true
	}
	edits = append(edits, removals(raw, members, gone)...)
	var added []byte
	for _, p := range set {
		if seen[p.name] || p.value == nil {
			continue
		}
		if left > 0 || added != nil {
			added = append(added, ',')
		}
		added = append(append(append(added, quote(p.name)...), ':'), p.value...)
	}
	if added != nil {
		end := bytes.LastIndexByte(raw, '}')
		edits = append(edits, strictjson.Edit{Start: end, End: end, New: added})
	}
	return strictjson.Splice(raw, edits)
}

// removals takes members out, each with the comma behind it, or, where nothing is
// left behind it, with the one before.
func removals(raw []byte, members []strictjson.Member, gone []bool) (edits []strictjson.Edit) {
	last := -1 // the last member that stays
	for i := range members {
		if !gone[i] {
			last = i
		}
	}
	for i := range members {
		switch {
		case !gone[i]:
		case i < last:
			edits = append(edits, strictjson.Edit{Start: members[i].At, End: members[i+1].At})
		default: // all that follow go, too
			start := members[i].At
			if last >= 0 {
				start = members[last].End
			}
			return append(edits, strictjson.Edit{Start: start, End: bytes.LastIndexByte(raw, '}')})
		}
	}
	return edits
}

// inputs are the answers to what a server asked for.
type inputs struct {
	responses []byte // an object; nil if it asked for nothing
	state     []byte // its requestState, as it was written; nil if there was none
}

// rounds sends a request until it is answered by a result, asking the client for what
// the server wants in between.
func (l *link) rounds(ctx context.Context, me *alone, e errand, build func(id int64) ([]byte, error)) (answer, error) {
	offers := l.offered(e.asker)
	var more *inputs
	for range maxRounds {
		var instead []byte
		a, err := l.send(ctx, e, func(id int64) ([]byte, error) {
			line, err := build(id)
			if err != nil {
				return nil, err
			}
			if instead = l.instead(line); instead != nil {
				return nil, errInstead
			}
			return me.dress(line, offers, more)
		})
		if instead != nil {
			return answer{body: instead}, nil
		}
		if err != nil || a.fault || !wantsInput(a.body) || e.asker != nil && e.asker.passes() {
			return a, err
		}
		more, err = gather(ctx, e.asker, a.body)
		a.free()
		if err != nil {
			return inPlace("the server wants input: " + err.Error()), nil //nolint:nilerr // it is in the answer
		}
		if more.responses == nil && !sleep(ctx, time.Second) { // it is busy, and says so in this way
			return answer{}, fmt.Errorf("not sent again: %w", context.Cause(ctx))
		}
	}
	return inPlace(fmt.Sprintf("the server asked for input more than %d times", maxRounds)), nil
}

// inPlace is an error that is answered in place of the server.
func inPlace(text string) answer {
	return answer{fault: true, body: faultBody(codeInternal, text, nil)}
}

// offered is what the client of a request offers, without what no server may ask.
func (l *link) offered(client asker) []byte {
	if client == nil || client.offers() == nil {
		return nil
	}
	var out []pair
	for _, method := range asks {
		if !slices.Contains(l.mayAsk, method) {
			out = append(out, pair{name: capabilityFor[method]})
		}
	}
	offers := client.offers()
	if v, ok, err := strictjson.Find(offers, "/extensions"); !client.passes() && err == nil && ok && v.Kind == strictjson.Object {
		left, err := setMembers(v.Raw, []pair{{name: extTasks}}) // a session has others
		if err != nil {
			return nil
		}
		out = append(out, pair{"extensions", left})
	}
	left, err := setMembers(offers, out)
	if err != nil {
		return nil
	}
	return left
}

// errInstead says that a request was answered here.
var errInstead = errors.New("answered here")

// instead does what a request of the era of sessions asks for that this era has no
// request for, and returns its result; nil if line is no such request.
func (l *link) instead(line []byte) []byte {
	m, err := readServer(line, len(line))
	if err != nil {
		return nil
	}
	text := func(name string) string {
		v, ok, err := strictjson.Find(m.params.of(m.raw), "/"+name)
		if err != nil || !ok {
			return ""
		}
		s, err := v.Text()
		if err != nil {
			return ""
		}
		return s
	}
	switch m.method {
	case "resources/subscribe":
		l.watch(text("uri"), true)
	case "resources/unsubscribe":
		l.watch(text("uri"), false)
	case "logging/setLevel":
		l.mu.Lock()
		me := *l.alone // requests under way read the one before
		me.level = quote(text("level"))
		l.alone = &me
		l.mu.Unlock()
	default:
		return nil
	}
	return []byte(`{}`)
}

// maxWatched bounds the resources of one server that clients have subscribed to.
const maxWatched = 1000

// watch subscribes to the resource uri, or ends that.
func (l *link) watch(uri string, on bool) {
	l.mu.Lock()
	i := slices.Index(l.watched, uri)
	switch {
	case on && i < 0 && len(l.watched) < maxWatched:
		l.watched = append(l.watched, uri)
	case !on && i >= 0:
		l.watched = slices.Delete(l.watched, i, i+1)
	default:
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.listen()
}

// gather asks the client for each thing that the result body of a server wants.
func gather(ctx context.Context, client asker, body []byte) (*inputs, error) {
	if err := strictjson.CheckLimits(body, strictjson.Limits{Depth: resultDepth}); err != nil {
		return nil, err
	}
	more := &inputs{}
	if v, ok, err := strictjson.Find(body, "/requestState"); err == nil && ok && v.Kind == strictjson.String {
		more.state = v.Raw
	}
	v, ok, err := strictjson.Find(body, "/inputRequests")
	if err != nil || !ok {
		return more, err
	}
	asks, err := strictjson.Members(v.Raw, strictjson.Limits{Depth: resultDepth})
	switch {
	case err != nil:
		return nil, err
	case len(asks) > maxInputs:
		return nil, fmt.Errorf("of %d kinds, at most %d", len(asks), maxInputs)
	case len(asks) == 0:
		return more, nil
	case client == nil:
		return nil, errors.New("nobody can be asked for it")
	}
	more.responses = []byte{'{'}
	for i, m := range asks {
		result, err := askFor(ctx, client, v.Raw[m.Start:m.End])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			more.responses = append(more.responses, ',')
		}
		more.responses = append(append(append(more.responses, quote(m.Name)...), ':'), result...)
	}
	more.responses = append(more.responses, '}')
	return more, nil
}

// askFor asks the client for one entry of inputRequests.
func askFor(ctx context.Context, client asker, entry []byte) ([]byte, error) {
	method, params, err := readWish(entry)
	if err != nil {
		return nil, err
	}
	return client.asked(ctx, method, params.Raw)
}

// readWish returns what an entry of inputRequests asks for: one of asks, and its params, an
// object, which have no place in the entry if it has none.
func readWish(entry []byte) (method string, params strictjson.Value, err error) {
	params.Raw = []byte(`{}`)
	members, err := strictjson.Members(entry, strictjson.Limits{Depth: resultDepth})
	if err == nil {
		err = unambiguous(members, []string{"method", "params"})
	}
	if err != nil {
		return "", params, fmt.Errorf("that cannot be read: %w", err)
	}
	kind := []byte("null")
	for _, m := range members {
		switch raw := entry[m.Start:m.End]; m.Name {
		case "method":
			kind = raw
		case "params":
			params = strictjson.Value{Start: m.Start, End: m.End, Raw: raw}
		}
	}
	if method, err = strictjson.Text(kind); err != nil || !slices.Contains(asks, method) {
		return "", params, errors.New("of an unknown kind: " + clip(string(kind)))
	}
	if params.Raw[0] != '{' {
		return "", params, errors.New("whose params are no object")
	}
	return method, params, nil
}
