package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A speaker puts a question to us, and has its book hear what comes.
type speaker interface {
	// ask returns when there is an answer, or none can come.
	ask(ctx context.Context, server string)
	// leave asks and does not wait.
	leave(ctx context.Context, server string)
	close() error
}

const pace = 60 * time.Millisecond // from one question of a hand to its next

// work has a client ask until ctx ends.
func work(ctx context.Context, s speaker, servers []string) {
	next := time.NewTicker(pace)
	defer next.Stop()
	for {
		server := servers[rand.IntN(len(servers))]
		if rand.IntN(25) == 0 {
			s.leave(context.WithoutCancel(ctx), server)
		} else {
			s.ask(context.WithoutCancel(ctx), server)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

func echo(id, server, nonce, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s__echo","arguments":{"message":%q},"_meta":{"progressToken":%q%s}}}`,
		id, server, nonce, "p"+id, meta)
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"soak","version":"1"}}}`

// A pipe is a client over standard input and output.
type pipe struct {
	*book
	cmd   *exec.Cmd
	mu    sync.Mutex
	in    io.WriteCloser
	ended chan struct{}
}

// newPipe starts cmd, which is us, and greets it.
func newPipe(cmd *exec.Cmd, b *book) (*pipe, error) {
	p := &pipe{book: b, cmd: cmd, ended: make(chan struct{})}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	q := &question{server: "us", done: make(chan struct{})}
	b.mu.Lock()
	b.open["0"] = q
	b.mu.Unlock()
	go func() {
		defer close(p.ended)
		lines := bufio.NewReaderSize(out, 64<<10)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				_ = cmd.Wait() // close looks at it
				return
			}
			if bytes.Contains(line, []byte(`"serverInfo"`)) { // it names no nonce
				b.mu.Lock()
				delete(b.open, "0")
				b.mu.Unlock()
				close(q.done)
				continue
			}
			b.heard(line)
		}
	}()
	err = p.send(hello)
	b.waits("0", q, p.ended)
	return p, errors.Join(err, p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

func (p *pipe) send(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

func (p *pipe) ask(_ context.Context, server string) {
	id, q := p.book.ask(server)
	if err := p.send(echo(id, server, q.nonce, "")); err != nil {
		p.lost(id, err.Error())
		return
	}
	p.waits(id, q, p.ended)
}

func (p *pipe) leave(_ context.Context, server string) {
	id, q := p.book.ask(server)
	_ = p.send(echo(id, server, q.nonce, "")) // what is withdrawn needs no answer
	p.withdraw(id)
	_ = p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
}

// close ends the input, and waits until the process has ended.
func (p *pipe) close() error {
	p.mu.Lock()
	err := p.in.Close()
	p.mu.Unlock()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		return errors.Join(errors.New("it did not end with its input"), p.cmd.Process.Kill())
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("it ended with %s", p.cmd.ProcessState)
	}
	return err
}

// A poster is a client over HTTP, of either era.
type poster struct {
	*book
	url, token, session string
	client              *http.Client
	stop                context.CancelFunc
	listens             sync.WaitGroup
}

func newPoster(ctx context.Context, url, token string, b *book, inSession bool) (*poster, error) {
	p := &poster{book: b, url: url, token: token, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Second}}}
	ctx, p.stop = context.WithCancel(ctx)
	if !inSession {
		return p, nil
	}
	r, err := p.post(ctx, hello, "initialize", "")
	if err != nil {
		return nil, err
	}
	p.session = r.Header.Get("Mcp-Session-Id")
	_, err = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	if err != nil || p.session == "" {
		return nil, fmt.Errorf("there is no session: %s, %w", r.Status, err)
	}
	if r, err = p.post(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", ""); err != nil {
		return nil, err
	}
	r.Body.Close()
	p.listens.Go(func() { p.listen(ctx) })
	return p, nil
}

// post sends a message; the body of the response is the caller's to close.
func (p *poster) post(ctx context.Context, body, method, name string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	p.dress(r, method, name)
	return p.client.Do(r)
}

func (p *poster) dress(r *http.Request, method, name string) {
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+p.token)
	switch {
	case p.session != "":
		r.Header.Set("Mcp-Session-Id", p.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	case method != "initialize":
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Mcp-Name", name)
	}
}

// listen hears what belongs to no request.
func (p *poster) listen(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
		if err != nil {
			return
		}
		p.dress(r, "", "")
		resp, err := p.client.Do(r)
		if err != nil {
			continue
		}
		_ = p.hear(resp)
		if resp.StatusCode != http.StatusOK {
			return
		}
	}
}

// hear has the book hear every message of a response.
func (p *poster) hear(r *http.Response) error {
	defer r.Body.Close()
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 0 {
			p.heard(body)
		}
		return err
	}
	lines := bufio.NewReaderSize(r.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && len(bytes.TrimSpace(data)) > 0 {
			p.heard(bytes.TrimSpace(data))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *poster) body(id, server, nonce string) string {
	if p.session != "" {
		return echo(id, server, nonce, "")
	}
	return echo(id, server, nonce, `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`)
}

func (p *poster) ask(ctx context.Context, server string) {
	id, q := p.book.ask(server)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := p.post(ctx, p.body(id, server, q.nonce), "tools/call", server+"__echo")
	if err == nil {
		err = p.hear(r)
		p.lost(id, r.Status+", and the response has ended")
	}
	if err != nil {
		p.lost(id, err.Error())
	}
}

// leave closes the connection before there is an answer; in a session it also cancels.
func (p *poster) leave(ctx context.Context, server string) {
	id, q := p.book.ask(server)
	p.withdraw(id)
	brief, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(4))*time.Millisecond)
	defer cancel()
	if r, err := p.post(brief, p.body(id, server, q.nonce), "tools/call", server+"__echo"); err == nil {
		_ = p.hear(r) // it is left in the middle
	}
	if p.session == "" {
		return
	}
	if r, err := p.post(ctx, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, "", ""); err == nil {
		r.Body.Close()
	}
}

// close ends the session and all connections.
func (p *poster) close() error {
	p.stop()
	p.listens.Wait()
	defer p.client.CloseIdleConnections()
	return p.end()
}

// end ends the session, if there is one.
func (p *poster) end() error {
	if p.session == "" {
		return nil
	}
	r, err := http.NewRequest(http.MethodDelete, p.url, nil)
	if err != nil {
		return err
	}
	p.dress(r, "", "")
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		err = fmt.Errorf("ending the session: %s", resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
