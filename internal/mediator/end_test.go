package mediator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPipedRequests: a client that writes its requests and closes its end gets the
// answers all the same.
func TestPipedRequests(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		p.hear()
		<-time.After(100 * time.Millisecond) // long enough to hear that the call is cancelled, if it is
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"late":true}}`)
		p.drain()
	}}}, func(o *Options) { o.Drain = time.Minute })
	conv.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	conv.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	conv.send(callLine("3", "a", "{}"))
	conv.in.Close()
	got := []string{conv.receive(), conv.receive(), conv.receive()}
	for _, want := range []string{`"id":1,"result":{"protocolVersion"`, `"id":2,"result":{"tools":[{`, `"id":3,"result":{"late":true}`} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("no answer with %s in %q", want, got)
		}
	}
	conv.close()
	if got := conv.d.logged("finish fs.a"); !slices.Equal(got, []string{`finish fs.a  {"late":true}`}) {
		t.Errorf("on record: %q", got)
	}
}

// TestGivenUp: at the end of the drain whatever is open is answered with an error, of
// either era, and that servers did not come up by then is no error of theirs.
func TestGivenUp(t *testing.T) {
	var log bytes.Buffer
	d := deciding("tools/call fs.a hold")
	never := func(p *fakeProcess) { p.drain() }
	conv := converse(t, d, map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}, "slow": {never}}, func(o *Options) {
		o.Drain, o.Log, o.ListWait = 50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)), time.Minute
	})
	conv.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	conv.receive()
	conv.send(callLine("2", "fs__a", "{}"))
	conv.send(`{"jsonrpc":"2.0","id":"three","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	<-d.held
	conv.in.Close()
	got := []string{conv.receive(), conv.receive()}
	for _, id := range []string{`"id":2`, `"id":"three"`} {
		if !slices.ContainsFunc(got, func(line string) bool {
			return strings.Contains(line, id) && strings.Contains(line, `"error"`) && strings.Contains(line, "after 50ms")
		}) {
			t.Errorf("no error for %s in %q", id, got)
		}
	}
	conv.close()
	if strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "not ready") {
		t.Errorf("the log of a good end has\n%s", log.String())
	}
}

// TestPipedForEver: what is not answered in time is cancelled, and a signal does
// not wait for that time.
func TestPipedForEver(t *testing.T) {
	for _, c := range []struct {
		name  string
		drain time.Duration
		want  error
	}{{"time", 20 * time.Millisecond, nil}, {"signal", time.Hour, context.Canceled}} {
		t.Run(c.name, func(t *testing.T) {
			d := deciding("tools/call fs.a hold")
			starter := starting(map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}})
			m, err := New(Options{Decider: d, Starter: starter, Servers: []Server{{Name: "fs", Command: "x"}}, StopGrace: time.Second, Drain: c.drain})
			if err != nil {
				t.Fatal(err)
			}
			ctx, signal := context.WithCancel(context.Background())
			defer signal()
			inR, inW, _ := os.Pipe()
			defer inR.Close()
			say(t, inW, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			say(t, inW, callLine("2", "a", "{}"))
			inW.Close()
			go func() {
				<-d.held
				if c.want != nil {
					signal()
				}
			}()
			if err := m.Run(ctx, inR, io.Discard); !errors.Is(err, c.want) {
				t.Errorf("Run: %v, want %v", err, c.want)
			}
			starter.running.Wait()
			d.check(t)
		})
	}
}
