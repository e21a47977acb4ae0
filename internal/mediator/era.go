package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// The protocol has two eras: revisions up to 2025-11-25 open a session with
// initialize; from 2026-07-28 on every request stands alone. What differs
// between them is behind these two interfaces; lists and calls do not know
// which era either side speaks.

// A clientEra answers a client of its era.
type clientEra interface {
	// serve takes in a request or a notification.
	serve(ctx context.Context, f *front, m message)
}

// A serverEra opens a connection to a server of its era.
type serverEra interface {
	// open makes l ready for requests and says what the server offers.
	open(ctx context.Context, l *link, version string) (offer, error)
}

// An offer is what a server says of itself when it is opened.
type offer struct {
	protocol string
	tools    bool
}

// sessions is the era that starts with initialize, on both sides.
type sessions struct{}

// sessionVersions are its revisions, newest first.
var sessionVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// metaVersion is how a request of the stateless era names its revision.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// eraOf returns the era of a message, or nil and the version it names if that is
// none of ours.
func eraOf(m message) (clientEra, string) {
	if !m.request() || !bytes.Contains(m.params.of(m.raw), []byte(metaVersion)) {
		return sessions{}, ""
	}
	v, ok, err := strictjson.Find(m.params.of(m.raw), "/_meta/"+strings.ReplaceAll(metaVersion, "/", "~1"))
	if err != nil || !ok {
		return sessions{}, ""
	}
	version, err := v.Text()
	if err != nil || !slices.Contains(sessionVersions, version) {
		return nil, version
	}
	return sessions{}, ""
}

func (e sessions) serve(ctx context.Context, f *front, m message) {
	if !m.request() {
		f.notified(m)
		return
	}
	switch m.method {
	case "initialize":
		f.answer(ctx, m, e.initialize(f, m))
	case "ping", "logging/setLevel":
		f.answer(ctx, m, []byte(`{}`))
	case "tools/list":
		f.begin(ctx, m, f.list)
	case "tools/call":
		f.begin(ctx, m, f.call)
	default:
		f.refuse(ctx, m.id(), codeMethod, "ringfence does not offer "+clip(m.method))
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
	f.opened.Store(true)
	b := append([]byte(`{"protocolVersion":`), quote(version)...)
	b = append(b, `,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"ringfence","version":`...)
	b = append(append(b, quote(f.m.o.Version)...), '}')
	if text := f.m.o.Instructions; text != "" {
		b = append(append(b, `,"instructions":`...), quote(text)...)
	}
	return append(b, '}')
}

// open offers the server no capabilities: it may ask nothing of the client.
func (sessions) open(ctx context.Context, l *link, version string) (offer, error) {
	params := append([]byte(`{"protocolVersion":`), quote(sessionVersions[0])...)
	params = append(params, `,"capabilities":{},"clientInfo":{"name":"ringfence","version":`...)
	params = append(append(params, quote(version)...), "}}"...)
	a, err := l.ask(ctx, "initialize", params)
	if err != nil {
		return offer{}, fmt.Errorf("opening: %w", err)
	}
	v, ok, err := strictjson.Find(a.body, "/protocolVersion")
	if err != nil {
		return offer{}, fmt.Errorf("opening: reading its answer: %w", err)
	}
	if !ok {
		return offer{}, errors.New("opening: its answer names no protocol version")
	}
	o := offer{}
	if o.protocol, err = v.Text(); err != nil || !slices.Contains(sessionVersions, o.protocol) {
		return offer{}, fmt.Errorf("opening: it speaks %s, which is none of %s", clip(string(v.Raw)), strings.Join(sessionVersions, ", "))
	}
	if _, o.tools, err = strictjson.Find(a.body, "/capabilities/tools"); err != nil {
		return offer{}, fmt.Errorf("opening: %w", err)
	}
	return o, l.out.send(ctx, notification("notifications/initialized", nil))
}

// clip keeps what strangers wrote short and on one line.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
