package load

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// What hostile clients over HTTP do, each again and again.
var misdeeds = []func(context.Context, *poster){
	func(ctx context.Context, p *poster) { // a stranger
		p.token = "wrong"
		discard(p.post(ctx, hello, "initialize", ""))
	},
	func(ctx context.Context, p *poster) { // a session that is none
		p.session = strings.Repeat("ab", 16)
		discard(p.post(ctx, echo("1", "steady", "x", ""), "tools/call", "steady__echo"))
	},
	func(ctx context.Context, p *poster) { // what is no message
		for _, body := range []string{"", "{", "[]", "null", `{"jsonrpc":"2.0"}`, "[" + hello + "," + hello + "]", strings.Repeat("[", 10_000), `{"id":1,"id":2}`} {
			discard(p.post(ctx, body, "initialize", ""))
		}
	},
	func(ctx context.Context, p *poster) { // much that is nothing
		discard(p.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"`+strings.Repeat("a", 1<<20)+`"}}`, "x", ""))
	},
	func(ctx context.Context, p *poster) { // a body that does not come
		at, _ := url.Parse(p.url)
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", at.Path, at.Host, p.token)
		pause(ctx, time.Second)
	},
	func(ctx context.Context, p *poster) { // sessions that nobody ends, with calls under way
		for n := range 4 {
			p.session = ""
			r, err := p.post(ctx, hello, "initialize", "")
			if err != nil {
				return
			}
			p.session = r.Header.Get("Mcp-Session-Id")
			discard(r, nil)
			brief, cancel := context.WithTimeout(ctx, time.Duration(n)*5*time.Millisecond)
			discard(p.post(brief, echo("1", "floods", "hostile", ""), "tools/call", ""))
			cancel()
		}
	},
	func(ctx context.Context, p *poster) { // the same id, what was not asked, what is another's
		r, err := p.post(ctx, hello, "initialize", "")
		if err != nil {
			return
		}
		p.session = r.Header.Get("Mcp-Session-Id")
		discard(r, nil)
		go func() { discard(p.post(ctx, echo("7", "hangs", "hostile", ""), "tools/call", "")) }()
		for n := range 20 {
			discard(p.post(ctx, echo("7", "steady", "hostile", ""), "tools/call", ""))
			discard(p.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`, n), "", ""))
			discard(p.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n), "", ""))
			discard(p.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}`, n), "", ""))
		}
		r2, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.url, nil)
		if err == nil {
			p.dress(r2, "", "")
			discard(p.client.Do(r2))
		}
	},
	func(ctx context.Context, p *poster) { // a stream that nobody reads
		r, err := p.post(ctx, hello, "initialize", "")
		if err != nil {
			return
		}
		p.session = r.Header.Get("Mcp-Session-Id")
		discard(r, nil)
		if r, err = p.post(ctx, echo("1", "floods", "hostile", ""), "tools/call", ""); err == nil {
			pause(ctx, time.Second)
			r.Body.Close()
		}
	},
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// harm does misdeeds over HTTP until ctx ends.
func harm(ctx context.Context, d *door, all *tally) {
	for ctx.Err() == nil {
		p := &poster{url: d.url, token: d.token, client: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Second}}}
		brief, cancel := context.WithTimeout(ctx, 5*time.Second)
		misdeeds[rand.IntN(len(misdeeds))](brief, p)
		cancel()
		p.client.CloseIdleConnections()
		all.hostile.Add(1)
		pause(ctx, pace)
	}
}

// harmPipe starts us again and again, says what nobody should, and ends in bad ways.
func harmPipe(ctx context.Context, s *stage, all *tally) {
	for ctx.Err() == nil {
		cmd := s.mcp()
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			all.fault("starting a hostile client's: %v", err)
			return
		}
		lines := []string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}
		for n := range 10 {
			lines = append(lines, echo(fmt.Sprint(n%3), s.names[n%len(s.names)], "hostile", ""), "{", `{"jsonrpc":"2.0","id":1,"result":{}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "["+hello+"]", strings.Repeat("x", 100_000))
		}
		for _, l := range lines {
			_, _ = io.WriteString(in, l+"\n") // it may have ended by now
		}
		pause(ctx, time.Second)
		if rand.IntN(2) == 0 {
			_ = cmd.Process.Kill()
		}
		_ = in.Close()
		_ = cmd.Wait() // in whatever way
		all.hostile.Add(1)
	}
}
