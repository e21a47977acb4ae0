// Package exec is a tool server with one tool, run_command, which runs a command
// line in a box.
//
// It runs nothing and could not: it lives in a box that has no files, no network and
// one pair of pipes that lead to the process which holds the session. It passes the
// arguments of a call on over them, byte for byte, and returns what comes back. That
// process runs what it has itself dispatched to this server, and nothing else.
//
// Invariants:
//
//	EX1  Arguments are passed on as they came; they are not looked at.
//	EX2  A call that is cancelled is called off at the other side too.
//	EX3  What is received is bounded, and one broken frame ends the server.
package exec

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/server/toolset"
	"ringfence/internal/sys/ipc"
)

// definitions is the tool list, as MCP has it, without the envelope.
//
//go:embed tools.json
var definitions []byte

const (
	maxHead   = 16 << 10 // bytes of a frame's header: an id and an error
	maxResult = 16 << 20 // bytes of a result
	// reportEvery is how often a call that is under way says so.
	reportEvery = 5 * time.Second
)

// Options say how a server reaches who runs its commands.
type Options struct {
	// Requests and Answers are pipes that carry frames of package ipc. What is sent:
	// the header {"op":"run","id":N}, with the arguments as body, and
	// {"op":"cancel","id":N}; N is the progress token of the call. What comes back
	// for each run: {"id":N}, with the result as body, an object of JSON, or
	// {"id":N,"error":"…"} if nothing was run.
	Requests io.WriteCloser
	Answers  io.ReadCloser
}

// Serve speaks MCP on in and out, one JSON message a line, until in ends or ctx
// does. It closes both, and the pipes of o. The error is nil when the client has
// gone.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser, o Options) error {
	if o.Requests == nil || o.Answers == nil {
		return errors.New("serving commands: there is nobody to run them: ringfence mcp starts this server, by {\"ringfence\": {\"builtin\": \"exec\"}}")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &channel{out: o.Requests, waiting: map[int64]chan answer{}}
	// It ends with the other side, or with this process: a read of a pipe that was
	// inherited need not end with Close.
	go func() { cancel(fmt.Errorf("hearing results: %w", c.hear(bufio.NewReader(o.Answers)))) }()
	srv, err := newServer(c)
	if err == nil {
		err = srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	}
	lost := context.Cause(ctx)
	o.Requests.Close()
	o.Answers.Close()
	switch {
	case lost != nil && !errors.Is(lost, context.Canceled) && !errors.Is(lost, io.EOF):
		return fmt.Errorf("serving commands: %w", lost)
	case err != nil && !errors.Is(err, io.EOF) && lost == nil:
		return fmt.Errorf("serving commands: %w", err)
	}
	return nil
}

func newServer(c *channel) (*mcp.Server, error) {
	return toolset.New("exec", definitions, map[string]mcp.ToolHandler{"run_command": c.call})
}

// call has one command run, and says every now and then that it still does.
func (c *channel) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	// JSON has one kind of number.
	token, ok := req.Params.GetProgressToken().(float64)
	id := int64(token)
	if !ok || float64(id) != token || id <= 0 {
		return failed(errors.New("the call has no progress token by which its command could be known"))
	}
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	done := make(chan answer, 1)
	go func() { done <- c.run(ctx, id, req.Params.Arguments) }()
	began := time.Now()
	for {
		select {
		case a := <-done:
			if a.err != nil {
				return failed(a.err)
			}
			return &mcp.CallToolResult{
				Content:           []mcp.Content{&mcp.TextContent{Text: string(a.body)}},
				StructuredContent: json.RawMessage(a.body),
			}, nil
		case <-ticker.C:
			// Nobody waits for it: what cannot be said is not.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: id, Progress: time.Since(began).Round(time.Second).Seconds(),
			})
		}
	}
}

// failed is the result of a call for which nothing was run.
func failed(err error) (*mcp.CallToolResult, error) {
	text, merr := json.Marshal(map[string]string{"error": err.Error()})
	if merr != nil {
		return nil, merr
	}
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text),
	}, nil
}

// A channel leads to who runs commands.
type channel struct {
	writing sync.Mutex // held while a frame is written
	out     io.Writer

	mu      sync.Mutex
	waiting map[int64]chan answer // each has room for one; nil when nothing comes any more
}

// An answer is the result of a command, or why there is none.
type answer struct {
	body []byte
	err  error
}

type request struct {
	Op string `json:"op"`
	ID int64  `json:"id"`
}

var errGone = errors.New("who runs commands has gone")

func (c *channel) send(r request, body []byte) error {
	head, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return ipc.WriteFrame(c.out, head, body)
}

// run has the command of the call id run, and waits for its end.
func (c *channel) run(ctx context.Context, id int64, args []byte) answer {
	a := make(chan answer, 1)
	c.mu.Lock()
	switch {
	case c.waiting == nil:
		c.mu.Unlock()
		return answer{err: errGone}
	case c.waiting[id] != nil:
		c.mu.Unlock()
		return answer{err: errors.New("a call with this progress token is under way")}
	}
	c.waiting[id] = a
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
	if err := c.send(request{"run", id}, args); err != nil {
		return answer{err: fmt.Errorf("asking for the command: %w", err)}
	}
	select {
	case got := <-a:
		return got
	case <-ctx.Done():
		err := context.Cause(ctx)
		return answer{err: errors.Join(err, c.send(request{"cancel", id}, nil))}
	}
}

// hear takes in answers until there are no more, and says why.
func (c *channel) hear(in io.Reader) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, a := range c.waiting {
			a <- answer{err: errGone}
		}
		c.waiting = nil
	}()
	for {
		head, body, err := ipc.ReadFrame(in, maxHead, maxResult)
		if err != nil {
			return err
		}
		id, a, err := readAnswer(head, body)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if waiting := c.waiting[id]; waiting != nil { // else it was called off
			waiting <- a
			delete(c.waiting, id)
		}
		c.mu.Unlock()
	}
}

// readAnswer decodes one frame.
func readAnswer(head, body []byte) (int64, answer, error) {
	var h struct {
		ID    int64  `json:"id"`
		Error string `json:"error"`
	}
	if err := strictjson.Unmarshal(head, &h); err != nil {
		return 0, answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	if h.Error != "" {
		return h.ID, answer{err: errors.New(h.Error)}, nil
	}
	if len(body) == 0 || body[0] != '{' || !json.Valid(body) {
		return 0, answer{}, errors.New("reading an answer: its body is no object")
	}
	return h.ID, answer{body: body}, nil
}
