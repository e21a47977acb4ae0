package mediator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

// requests is the era in which every request stands alone.
type requests struct{}

// requestVersions are its revisions, newest first.
var requestVersions = []string{"2026-07-28"}

// Names in _meta that this era has.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// stateless reports whether m itself says that it is of the era of requests. The
// version of an older revision in _meta does not make it one.
func (m message) stateless() bool {
	if m.method == "server/discover" {
		return true
	}
	if v, ok := m.meta(metaVersion); ok {
		text, err := v.Text()
		return err != nil || !slices.Contains(sessionVersions, text)
	}
	_, ok := m.meta(metaCapabilities)
	return ok
}

// metaSpace is before the slash in the names that the protocol itself has in _meta.
const metaSpace = "io.modelcontextprotocol"

// protocolNames are those of them that are decided on or taken out.
var protocolNames = []string{metaVersion, metaClient, metaCapabilities, metaLevel, metaServer, metaSubscription}

// readMeta finds params._meta of what a client sent. Names of the protocol in it that are
// written with escapes, or that differ from one in case only, make m one that is refused.
func (m *message) readMeta() {
	if m.method == "" || !m.params.ok() {
		return
	}
	members, err := within(m.raw, m.params, []string{"_meta"})
	for _, v := range members {
		if v.Name == "_meta" && m.raw[v.Start] == '{' {
			m.metaAt = span{v.Start, v.End}
		}
	}
	if m.odd = err; err != nil || !m.metaAt.ok() {
		return
	}
	members, err = within(m.raw, m.metaAt, protocolNames)
	for _, v := range members {
		space, _, ok := strings.Cut(v.Name, "/")
		if ok && strings.EqualFold(space, metaSpace) && (v.Escaped || space != metaSpace) && err == nil {
			err = fmt.Errorf("offset %d: %w: %q", v.At, errLookLike, metaPrefix)
		}
	}
	m.odd = err
}

// meta returns a member of params._meta.
func (m message) meta(name string) (strictjson.Value, bool) {
	if !m.metaAt.ok() {
		return strictjson.Value{}, false
	}
	v, ok, err := strictjson.Find(m.metaAt.of(m.raw), "/"+strictjson.Escape(name))
	return v, ok && err == nil
}

// metaText is meta of a string.
func (m message) metaText(name string) (string, bool) {
	v, ok := m.meta(name)
	if !ok {
		return "", false
	}
	text, err := v.Text()
	return text, err == nil
}

// serve takes in a request or a notification that stands alone.
func (e requests) serve(ctx context.Context, f *front, m message, s Stream) {
	if !m.request() {
		f.notified(m)
		return
	}
	if code, text, data := e.check(m); code != 0 {
		_ = s.Answer(ctx, Answer{Line: response(m.id(), "error", faultBody(code, text, data)), Code: code, Malformed: true})
		return
	}
	if len(f.m.o.MayAsk) > 0 {
		v, _ := m.meta(metaCapabilities)
		f.m.meet(apart, v.Raw)
	}
	row, ok := methodOf(m.method, inRequests)
	switch {
	case !ok:
		f.refuse(ctx, s, m.id(), codeMethod, "ringfence does not offer "+clip(m.method))
	case m.method == "server/discover":
		f.reply(ctx, s, m, e.discover(f.m))
	case m.method == "subscriptions/listen":
		f.listen(ctx, m, s)
	case row.place == placeEra:
		f.refuse(ctx, s, m.id(), codeMethod, "ringfence does not offer "+clip(m.method))
	default:
		e.forward(ctx, f, m, s)
	}
}

// forward begins a request, or goes on with the one whose state it brings.
func (requests) forward(ctx context.Context, f *front, m message, s Stream) {
	v, ok, err := strictjson.Find(m.params.of(m.raw), "/requestState")
	if err != nil || !ok {
		f.resumable(ctx, m, s)
		return
	}
	text, err := v.Text()
	if err == nil {
		var kind byte
		var payload []byte
		kind, payload, err = f.m.seals.open(text, f.who, digestOf(m), time.Now())
		switch {
		case err != nil:
		case kind == stateTicket:
			f.resume(ctx, m, s, string(payload))
			return
		default:
			var own message
			if own, err = m.withState(v, payload); err == nil {
				f.resumable(ctx, own, s)
				return
			}
		}
	}
	f.refuse(ctx, s, m.id(), codeParams, "refused: "+errState.Error())
}

// withState returns m with the state that a server gave, a JSON string, in place of
// the sealed one at v in params.
func (m message) withState(v strictjson.Value, state []byte) (message, error) {
	line, err := strictjson.Splice(m.raw, []strictjson.Edit{{Start: m.params.start + v.Start, End: m.params.start + v.End, New: state}})
	if err != nil {
		return message{}, err
	}
	return readClient(line)
}

// check returns why a request is none of this era; its code is 0 if it is.
func (requests) check(m message) (code int, text string, data []byte) {
	v, ok := m.meta(metaVersion)
	if !ok {
		return codeParams, "_meta names no " + metaVersion, nil
	}
	version, err := v.Text()
	if err != nil {
		return codeParams, metaVersion + " is not a string", nil
	}
	if !slices.Contains(requestVersions, version) {
		return codeUnsupported, "this protocol version is not supported", unsupported(version)
	}
	if v, ok := m.meta(metaCapabilities); !ok || v.Kind != strictjson.Object {
		return codeParams, "_meta has no object " + metaCapabilities, nil
	}
	return 0, "", nil
}

// supported are all revisions that a client may speak, newest first, as a JSON array.
func supported() []byte {
	b := []byte{'['}
	for i, v := range slices.Concat(requestVersions, sessionVersions) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(v)...)
	}
	return append(b, ']')
}

// unsupported is the data of an error about a version.
func unsupported(version string) []byte {
	b := append([]byte(`{"supported":`), supported()...)
	b = append(append(b, `,"requested":`...), quote(version)...)
	return append(b, '}')
}

// discover says what there is, to clients that open no session.
func (requests) discover(m *Mediator) []byte {
	b := append([]byte(`{"resultType":"complete","supportedVersions":`), supported()...)
	b = append(append(b, `,"capabilities":`...), m.capabilities(inRequests)...)
	b = m.withInstructions(b)
	b = append(append(b, `,"ttlMs":0,"cacheScope":"private","_meta":{"`+metaServer+`":`...), m.identity()...)
	return append(b, "}}"...)
}
