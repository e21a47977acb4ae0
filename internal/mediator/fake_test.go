package mediator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act"
)

// A fakeServer is a server in this process: a function over its streams.
type fakeServer func(p *fakeProcess)

// A fakeProcess is what a fakeServer has of its process. Its streams end when it
// is killed.
type fakeProcess struct {
	in         *bufio.Scanner
	out        io.WriteCloser
	stdin      io.Closer
	stderr     io.Writer
	terminated chan struct{}
	killed     chan struct{}
}

func (p *fakeProcess) say(lines ...string) {
	for _, l := range lines {
		if _, err := io.WriteString(p.out, l+"\n"); err != nil {
			return
		}
	}
}

// hear returns the next line, "" at the end.
func (p *fakeProcess) hear() string {
	if !p.in.Scan() {
		return ""
	}
	return p.in.Text()
}

// open does what every session starts with. The tools are the elements of the
// list.
func (p *fakeProcess) open(tools string) {
	p.hear()
	p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`)
	p.hear()
	p.hear()
	p.say(`{"jsonrpc":"2.0","id":2,"result":{"tools":[` + tools + `]}}`)
}

// drain reads until the end.
func (p *fakeProcess) drain() {
	for p.in.Scan() {
	}
}

// fakeStarter starts fakeServers; the nth start of a name runs its nth function,
// the last one again and again.
type fakeStarter struct {
	mu      sync.Mutex
	servers map[string][]fakeServer
	starts  map[string]int
	probed  bool // servers may be asked for the era of requests
	running sync.WaitGroup
}

func starting(servers map[string][]fakeServer) *fakeStarter {
	return &fakeStarter{servers: servers, starts: map[string]int{}}
}

func (f *fakeStarter) Start(_ context.Context, s Server) (*Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.servers[s.Name]
	if len(run) == 0 {
		return nil, errors.New("no such program")
	}
	n := f.starts[s.Name]
	f.starts[s.Name]++
	return f.process(run[min(n, len(run)-1)]), nil
}

func (f *fakeStarter) process(run fakeServer) *Process {
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	errR, errW, _ := os.Pipe()
	p := &fakeProcess{
		in: bufio.NewScanner(inR), out: outW, stdin: inR, stderr: errW,
		terminated: make(chan struct{}), killed: make(chan struct{}),
	}
	p.in.Buffer(nil, 64<<20)
	ended := make(chan struct{})
	f.running.Go(func() {
		run(p)
		inR.Close()
		outW.Close()
		errW.Close()
		close(ended)
	})
	var term, kill sync.Once
	return &Process{
		Stdin: inW, Stdout: outR, Stderr: errR,
		Terminate: func() { term.Do(func() { close(p.terminated) }) },
		Kill: func() {
			kill.Do(func() {
				close(p.killed)
				inR.Close()
				outW.Close()
				errW.Close()
			})
		},
		Wait:     func() error { <-ended; return nil },
		Report:   "fake",
		Sessions: !f.probed,
	}
}

// A fakeDecider answers by the lines of a table, first match wins:
//
//	tools/call fs.read allow           args as received
//	tools/call fs.read allow {"a":1}   other args
//	tools/call fs.read deny policy because so
//	tools/call fs.read hold            allow, but only when the context has ended
//	tools/call fs.read fail            an error; with the code that follows, if any
//	finish fs.read {"content":[]}      the reply; "fail" is an error, "none" no body
//	note fs.read withheld two lines    the note of the reply
//
// What no line matches is allowed and replied as it came, but that a server may ask nothing.
type fakeDecider struct {
	table []string
	held  chan struct{} // gets a value when a decision starts to be held

	mu       sync.Mutex
	log      []string
	finished map[string]int
	allowed  int
}

func deciding(table string) *fakeDecider {
	d := &fakeDecider{held: make(chan struct{}, 2*maxCalls), finished: map[string]int{}}
	for l := range strings.Lines(table) {
		d.table = append(d.table, strings.TrimSuffix(l, "\n"))
	}
	return d
}

func (d *fakeDecider) rule(verb, tool string) string {
	for _, l := range d.table {
		if rest, ok := strings.CutPrefix(l, verb+" "+tool+" "); ok {
			return rest
		}
	}
	return ""
}

func (d *fakeDecider) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	rule := d.rule(string(r.Verb), r.Tool)
	if rule == "" && strings.HasSuffix(r.Tool, ".asks/list") {
		return act.Ticket{}, nil
	}
	d.mu.Lock()
	d.log = append(d.log, fmt.Sprintf("decide %s %s %s", r.Verb, r.Tool, r.Args))
	t := act.Ticket{ID: fmt.Sprintf("s/%d", len(d.log)), Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow}
	d.mu.Unlock()
	word, rest, _ := strings.Cut(rule, " ")
	switch word {
	case "deny":
		code, reason, _ := strings.Cut(rest, " ")
		t.Verdict, t.Code, t.Reason, t.Rules = act.Deny, act.Code(code), reason, []string{"c1"}
		return t, nil
	case "fail":
		return act.Ticket{Code: act.Code(rest)}, errors.New("the engine is gone")
	case "hold":
		d.held <- struct{}{}
		<-ctx.Done()
	case "allow":
		t.Bytes = []byte(rest)
	case "leave-out":
		t.Filter.LeaveOut = []string{rest}
	}
	d.mu.Lock()
	d.allowed++
	d.mu.Unlock()
	return t, nil
}

func (d *fakeDecider) Finish(ctx context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	d.mu.Lock()
	d.log = append(d.log, strings.TrimSpace(fmt.Sprintf("finish %s %s %s", t.Tool, o.Error, o.Body)))
	d.finished[t.ID]++
	d.mu.Unlock()
	if ctx.Err() != nil {
		return act.Reply{}, ctx.Err()
	}
	body := o.Body
	switch rule := d.rule("finish", t.Tool); rule {
	case "":
	case "fail":
		return act.Reply{}, errors.New("the disk is full")
	case "none":
		body = nil
	default:
		body = []byte(rule)
	}
	return act.Reply{Body: body, Note: d.rule("note", t.Tool)}, nil
}

// check reports tickets that were not finished exactly once.
func (d *fakeDecider) check(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, n := range d.finished {
		if n != 1 {
			t.Errorf("ticket %s was finished %d times", id, n)
		}
	}
	if len(d.finished) != d.allowed {
		t.Errorf("%d tickets allowed, %d finished", d.allowed, len(d.finished))
	}
}

// logged returns the sorted lines that start with prefix.
func (d *fakeDecider) logged(prefix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, l := range d.log {
		if strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return out
}

// A conversation is a client, a mediator and its servers.
type conversation struct {
	t       testing.TB
	d       *fakeDecider
	starter *fakeStarter
	in      *os.File
	out     *bufio.Reader
	outEnd  *os.File
	ended   chan error
	once    sync.Once
}

func converse(t testing.TB, d *fakeDecider, servers map[string][]fakeServer, change func(*Options)) *conversation {
	t.Helper()
	c := &conversation{t: t, d: d, starter: starting(servers), ended: make(chan error, 1)}
	o := Options{
		Decider: d, Starter: c.starter, Session: "s", Principal: "p/a", Version: "1",
		Backoff: time.Millisecond, RefreshEvery: time.Millisecond, StopGrace: 100 * time.Millisecond,
		Drain: 1, // what is in flight is cancelled when the client ends
	}
	names := make([]string, 0, len(servers))
	for name := range servers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		o.Servers = append(o.Servers, Server{Name: name, Command: name})
	}
	if change != nil {
		change(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	c.in, c.out, c.outEnd = inW, bufio.NewReaderSize(outR, 1<<20), outR
	go func() {
		c.ended <- m.Run(context.Background(), inR, outW)
		inR.Close()
		outW.Close()
	}()
	t.Cleanup(c.close)
	return c
}

// close ends the conversation as a client does, and checks what must then hold.
func (c *conversation) close() { c.once.Do(c.end) }

func (c *conversation) end() {
	c.t.Helper()
	c.in.Close()
	go func() { _, _ = io.Copy(io.Discard, c.out) }()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Errorf("Run: %v", err)
		}
	case <-time.After(20 * time.Second):
		c.t.Fatal("Run does not end")
	}
	c.starter.running.Wait()
	c.d.check(c.t)
	c.outEnd.Close()
}

func (c *conversation) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *conversation) receive() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("receiving: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// open initializes the session.
func (c *conversation) open() {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if got := c.receive(); !strings.Contains(got, `"protocolVersion":"2025-06-18"`) {
		c.t.Fatalf("initialize: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// ask sends a request and expects an answer that contains each of want.
func (c *conversation) ask(line string, want ...string) string {
	c.t.Helper()
	c.send(line)
	got := c.receive()
	for _, w := range want {
		if !strings.Contains(got, w) {
			c.t.Errorf("%.200s\n got %.300s\nwant %s", line, got, w)
		}
	}
	return got
}

func callLine(id, tool, args string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
	return b.String()
}
