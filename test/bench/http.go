package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/test/rig"
)

// sdkServer is the server that is called over HTTP: that of the Go SDK which has all
// that the conformance suite asks for.
const sdkServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// overHTTP measures calls over HTTP, of clients of both eras, through us beside calls of
// the same server without us.
func overHTTP(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(httpRows(ctx, b, h), h.Close())
}

// An opener makes a client ready to call, and calls once.
type opener func(*httpClient, context.Context) error

func httpRows(ctx context.Context, b *bench, h *rig.Home) error {
	server := filepath.Join(b.dir, "everything")
	if err := rig.GoBuild(ctx, server, sdkServer); err != nil {
		return err
	}
	for _, era := range []struct {
		what, stateless string
		open            opener
	}{
		{"with a session", "false", (*httpClient).initialize},
		{"that stands alone", "true", (*httpClient).standAlone},
	} {
		err := httpEra(ctx, b, h, server, era.what, era.stateless, era.open)
		if err != nil {
			return fmt.Errorf("a call over HTTP %s: %w", era.what, err)
		}
	}
	return nil
}

func httpEra(ctx context.Context, b *bench, h *rig.Home, server, what, stateless string, open opener) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	behind := exec.CommandContext(ctx, server, "-http", at, "-stateless="+stateless)
	if err := behind.Start(); err != nil {
		return err
	}
	ended.Go(func() { _ = behind.Wait() }) // it is killed
	direct := newHTTPClient("http://"+at+"/", "")
	if err := direct.until(ctx, open); err != nil {
		return err
	}
	through, err := listening(ctx, h, at, &ended)
	if err != nil {
		return err
	}
	if err := through.until(ctx, open); err != nil {
		return err
	}
	relayAt, err := relayHTTP(ctx, b, "http://"+at+"/", &ended)
	if err != nil {
		return fmt.Errorf("starting a relay: %w", err)
	}
	relayed := newHTTPClient(relayAt, "")
	if err := relayed.until(ctx, open); err != nil {
		return fmt.Errorf("the relay: %w", err)
	}
	took, err := allInTurn(ctx, b.times(2000), func() error { return through.call(ctx) }, func() error { return relayed.call(ctx) }, func() error { return direct.call(ctx) })
	if err != nil {
		return err
	}
	mine, relay, theirs := took[0], took[1], took[2]
	b.add(latency("HTTP call "+what+", observing", mine, "the server called directly", theirs).added(mine, theirs, 400*time.Microsecond))
	b.add(besideRelay("HTTP call "+what, mine, relay))
	b.add(floorRow("a relay over HTTP that does nothing, a call "+what, relay, theirs, false))
	some, others, err := crowdsInTurn(ctx, b.times(10), 16, b.times(40), func(int) error { return through.call(ctx) }, func(int) error { return direct.call(ctx) })
	if err != nil {
		return err
	}
	b.add(rates("HTTP calls, 16 at once, each one "+what, "calls", some.rate, "the server called directly", others.rate).atLeast(some.rate, 1000, "calls"))
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

var listensAt = regexp.MustCompile(`MCP at (\S+), with the token in (\S+)`)

// listening starts us in front of the server at an address, with its one tool that is
// called annotated, approved and allowed.
func listening(ctx context.Context, h *rig.Home, at string, ended *sync.WaitGroup) (*httpClient, error) {
	servers, err := h.Servers(map[string]any{"sdk": map[string]any{"type": "http", "url": "http://" + at + "/", "ringfence": map[string]any{"annotations": "sdk"}}})
	if err != nil {
		return nil, err
	}
	policy, err := h.Policy(ctx, "may use sdk.*")
	if err != nil {
		return nil, err
	}
	if err := approved(ctx, h, policy, servers); err != nil {
		return nil, err
	}
	c := h.Command(ctx, "mcp", "--servers", servers, "--policy", policy, "--ask", "never", "--listen", "127.0.0.1:0")
	errs, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		m := listensAt.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		ended.Go(func() {
			_, _ = io.Copy(io.Discard, errs)
			_ = c.Wait() // it is killed
		})
		token, err := os.ReadFile(m[2])
		return newHTTPClient(m[1], strings.TrimSpace(string(token))), err
	}
	return nil, errors.Join(errors.New("it does not listen"), c.Wait())
}

// approved has the tool annotated and its definition approved, once for a home.
func approved(ctx context.Context, h *rig.Home, policy, servers string) error {
	draft := filepath.Join(h.Person, "sdk.json")
	if _, err := os.Stat(filepath.Join(h.Own, "annotations", "sdk.json")); err == nil {
		return nil
	}
	text := `{"name":"sdk","tools":{"test_simple_text":{"group":"observe","args":{}}}}`
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := h.Run(ctx, "annotate-tools", "--accept", "sdk", "-o", draft, "--yes"); err != nil {
		return err
	}
	m, err := h.MCP(ctx, policy, servers)
	if err != nil {
		return err
	}
	_, err = m.Tools(ctx)
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	out, _ := h.Run(ctx, "tools", "review", "--json") // its status says that there is something to review
	var pins []struct{ Server, Tool, Hash string }
	if err := json.Unmarshal(out, &pins); err != nil {
		return err
	}
	for _, p := range pins {
		if p.Tool == "test_simple_text" {
			_, err := h.Run(ctx, "tools", "pin", p.Server+"."+p.Tool, p.Hash)
			return err
		}
	}
	return errors.New("the tool is not there to be approved")
}

// An httpClient is as little of a client over HTTP as can be.
type httpClient struct {
	client *http.Client
	url    string
	header http.Header
	rest   string       // of a call, behind its id
	calls  atomic.Int64 // so far
}

func newHTTPClient(url, token string) *httpClient {
	c := &httpClient{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}, url: url, header: http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}}
	if token != "" {
		c.header.Set("Authorization", "Bearer "+token)
	}
	return c
}

// post sends a message and returns the answer, which must have a good status, and its
// header.
func (c *httpClient) post(ctx context.Context, body []byte) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header = c.header
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("unexpected status %s %s", resp.Status, text)
	}
	return resp.Header, text, err
}

// until opens the client as soon as somebody answers.
func (c *httpClient) until(ctx context.Context, open opener) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := open(c, ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *httpClient) initialize(ctx context.Context) error {
	header, _, err := c.post(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`))
	if err != nil {
		return err
	}
	c.header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	c.header.Set("MCP-Protocol-Version", "2025-11-25")
	if _, _, err := c.post(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		return err
	}
	c.rest = `,"method":"tools/call","params":{"name":"test_simple_text","arguments":{}}}`
	return c.call(ctx)
}

func (c *httpClient) standAlone(ctx context.Context) error {
	c.header.Set("MCP-Protocol-Version", "2026-07-28")
	c.header.Set("Mcp-Method", "tools/call")
	c.header.Set("Mcp-Name", "test_simple_text")
	c.rest = `,"method":"tools/call","params":{"name":"test_simple_text","arguments":{},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	return c.call(ctx)
}

func (c *httpClient) call(ctx context.Context) error {
	_, text, err := c.post(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d%s`, 2+c.calls.Add(1), c.rest))
	if err == nil && !bytes.Contains(text, []byte("simple text response")) {
		err = fmt.Errorf("unexpected answer %s", text)
	}
	return err
}
