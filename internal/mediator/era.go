package mediator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// The protocol has two eras: revisions up to 2025-11-25 open a session with
// initialize; from 2026-07-28 on every request stands alone. What differs
// between them on the side of the client is in [sessions.serve] and
// [requests.serve], on the side of servers behind serverEra; lists and calls do
// not know which era either side speaks.

// sessions is the era that starts with initialize, on both sides.
type sessions struct{}

// sessionVersions are its revisions, newest first.
var sessionVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// A hello is what a client said of itself when it opened a session.
type hello struct {
	capabilities []byte // a JSON object; nil if there is none
}

// serve takes in a request or a notification of a session.
func (e sessions) serve(ctx context.Context, f *front, m message, s Stream) {
	if !m.request() {
		f.notified(m)
		return
	}
	if !f.opened.Load() && m.method != "initialize" && m.method != "ping" {
		f.refuse(ctx, s, m.id(), codeRequest, "the session has not been initialized")
		return
	}
	row, ok := methodOf(m.method, inSessions)
	switch {
	case !ok:
		f.refuse(ctx, s, m.id(), codeMethod, "ringfence does not offer "+clip(m.method))
	case m.method == "initialize":
		f.reply(ctx, s, m, e.initialize(f, m))
	case row.place == placeEra:
		f.reply(ctx, s, m, []byte(`{}`)) // ping
	default:
		f.begin(ctx, m, s, f.forward)
	}
}

// initialize answers with the version of the client if it is known, else with
// the newest.
func (sessions) initialize(f *front, m message) []byte {
	version := sessionVersions[0]
	if v, ok, err := strictjson.Find(m.params.of(m.raw), "/protocolVersion"); err == nil && ok {
		if asked, err := v.Text(); err == nil && slices.Contains(sessionVersions, asked) {
			version = asked
		}
	}
	f.mu.Lock()
	if v, ok, err := strictjson.Find(m.params.of(m.raw), "/capabilities"); err == nil && ok && v.Kind == strictjson.Object {
		f.hello.capabilities = v.Raw
	}
	f.mu.Unlock()
	f.m.meet(sessioned, f.hello.capabilities)
	f.opened.Store(true)
	b := append([]byte(`{"protocolVersion":`), quote(version)...)
	b = append(append(b, `,"capabilities":`...), f.m.capabilities(inSessions)...)
	b = append(append(b, `,"serverInfo":`...), f.m.identity()...)
	return append(f.m.withInstructions(b), '}')
}

func (m *Mediator) identity() []byte {
	return append(append([]byte(`{"name":"ringfence","version":`), quote(m.o.Version)...), '}')
}

func (m *Mediator) withInstructions(b []byte) []byte {
	if text := m.o.Instructions; text != "" {
		b = append(append(b, `,"instructions":`...), quote(text)...)
	}
	return b
}

// clip keeps what strangers wrote short and on one line.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
