package mediator

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestDefinitions: all pages, byte for byte, and a process that is gone.
func TestDefinitions(t *testing.T) {
	const one, two = `{"name":"a", "x":"é\u0041"}`, `{ "name":"b"}`
	paged := func(p *fakeProcess) {
		p.hear()
		p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}`)
		p.hear()
		p.hear()
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"result":{"tools":[%s],"nextCursor":"n"}}`, one))
		if got := p.hear(); !strings.Contains(got, `"cursor":"n"`) {
			t.Error("the second page is asked for with", got)
		}
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"result":{"tools":[%s]}}`, two))
		p.drain()
	}
	none := func(p *fakeProcess) {
		p.hear()
		p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
		p.drain()
	}
	for name, c := range map[string]struct {
		run       fakeServer
		list, err string
	}{
		"pages":  {paged, `{"tools":[` + one + `,` + two + `]}`, ""},
		"none":   {none, `{"tools":[]}`, ""},
		"ends":   {func(*fakeProcess) {}, "", "it "},
		"silent": {func(p *fakeProcess) { p.drain() }, "", "it took too long"},
		"future": {func(p *fakeProcess) {
			p.hear()
			p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"x"}}`)
			p.drain()
		}, "", "it speaks"},
	} {
		t.Run(name, func(t *testing.T) {
			starter := starting(map[string][]fakeServer{"fs": {c.run}})
			var log bytes.Buffer
			o := Options{
				Starter: starter, StopGrace: 100 * time.Millisecond,
				Log: slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil)),
			}
			if name == "silent" {
				o.StartTimeout = 100 * time.Millisecond
			}
			list, report, err := Definitions(t.Context(), o, Server{Name: "fs"})
			starter.running.Wait()
			if string(list) != c.list || report != "fake" {
				t.Errorf("got %s, %q", list, report)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
	if _, _, err := Definitions(t.Context(), Options{Starter: starting(nil)}, Server{Name: "fs"}); err == nil {
		t.Error("a server that cannot be started is no error")
	}
	if _, _, err := Definitions(t.Context(), Options{Starter: starting(nil)}, Server{Name: "a__b"}); err == nil {
		t.Error("a name that no server can have is no error")
	}
	if _, _, err := Definitions(t.Context(), Options{}, Server{Name: "fs"}); err == nil {
		t.Error("no starter is no error")
	}
}
