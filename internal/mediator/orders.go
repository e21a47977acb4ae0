package mediator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/ipc"
)

// A Commander runs the commands that the built-in server "exec" was asked for. It
// decides nothing: the ticket of the call has been obtained.
type Commander interface {
	// Run runs what args, which are those of the ticket, ask for, in a box of its own,
	// and returns the result, an object of JSON. The box is on record before anything
	// runs, and when Run returns nothing of it is left. When ctx ends, the box does.
	Run(ctx context.Context, s Server, t act.Ticket, args []byte) ([]byte, error)
}

// The bounds of the channel to a server that asks for commands.
const (
	maxAsk     = 256 // bytes of the header of a frame
	maxRefused = 16  // requests that no call stands behind, until the server is stopped
)

// orders are the calls by which one incarnation of the server "exec" may have a
// command run. The server is not trusted: it gets run what was dispatched to it, the
// same bytes, once, and while that call is under way.
//
// Locks: mu is a leaf.
type orders struct {
	server  Server
	run     Commander // nil: nothing is run
	out     *outbox
	channel io.ReadWriteCloser
	log     *slog.Logger
	breach  func(error)
	heard   chan struct{} // closed when nothing more is read

	mu      sync.Mutex
	open    map[int64]*order // by the id of the call
	refused int
	ended   bool // the channel has; nothing is run any more
}

// An order is a call that is under way, and the command that runs for it.
type order struct {
	ctx    context.Context //nolint:containedctx // of the call, which the command ends with
	cancel context.CancelCauseFunc
	ticket act.Ticket
	args   []byte
	taken  bool           // the server has asked for it
	box    sync.WaitGroup // what runs
}

func newOrders(s Server, run Commander, channel io.ReadWriteCloser, log *slog.Logger, breach func(error)) *orders {
	return &orders{
		server: s, run: run, out: newOutbox(channel, 64), channel: channel, log: log, breach: breach,
		heard: make(chan struct{}), open: map[int64]*order{},
	}
}

// place lets the server have the command of a call run, from now until it is
// withdrawn. args are the bytes that are dispatched.
func (o *orders) place(ctx context.Context, id int64, t act.Ticket, args []byte) {
	r := &order{ticket: t, args: args}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[id] = r
}

var errAnswered = errors.New("the call was over before its command")

// withdraw ends what was placed. When it returns nothing of the command runs.
func (o *orders) withdraw(id int64) {
	o.mu.Lock()
	r := o.open[id]
	delete(o.open, id)
	o.mu.Unlock()
	if r != nil {
		r.cancel(errAnswered)
		r.box.Wait()
	}
}

// An ask is what the server sends: "run" with the arguments of the call as body, or
// "cancel".
type ask struct {
	Op string `json:"op"`
	ID int64  `json:"id"`
}

var errAsk = errors.New("it sent a frame that cannot be read")

// readAsk reads one frame, strictly. What the stream ended with is returned as it is.
func readAsk(in io.Reader) (ask, []byte, error) {
	head, body, err := ipc.ReadFrame(in, maxAsk, strictjson.MaxSize)
	if errors.Is(err, ipc.ErrFrameSize) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ask{}, nil, errAsk
	}
	if err != nil {
		return ask{}, nil, err
	}
	var a ask
	if strictjson.Unmarshal(head, &a) != nil || a.ID <= 0 || a.Op != "run" && (a.Op != "cancel" || len(body) > 0) {
		return ask{}, nil, errAsk
	}
	return a, body, nil
}

// serve does what the server asks for, until it ends.
func (o *orders) serve() {
	defer close(o.heard)
	in := bufio.NewReader(o.channel)
	for {
		a, body, err := readAsk(in)
		if err != nil {
			o.end()
			if errors.Is(err, errAsk) {
				o.breach(err)
			}
			return
		}
		if a.Op == "cancel" {
			o.callOff(a.ID)
			continue
		}
		o.start(a.ID, body)
	}
}

// end ends everything that runs: the server that asked for it has gone.
func (o *orders) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, r := range o.open {
		r.cancel(errors.New("the server of the command ended"))
	}
}

// close makes the channel known as ended to both sides, and waits until nothing
// happens on it.
func (o *orders) close() {
	o.out.close()
	o.channel.Close()
	<-o.heard
	<-o.out.done
}

func (o *orders) callOff(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.open[id]; r != nil {
		r.cancel(errCancelled)
	}
}

// start runs the command of a call in a goroutine of its own, which ends before the
// call does.
func (o *orders) start(id int64, args []byte) {
	r, err := o.take(id, args)
	if err != nil {
		o.refuse(id, err)
		return
	}
	go func() {
		defer r.box.Done()
		defer r.cancel(nil)
		body, err := o.run.Run(r.ctx, o.server, r.ticket, r.args)
		o.answer(r.ctx, id, body, err)
	}()
}

// take returns the order that a request is for, and makes it taken.
func (o *orders) take(id int64, args []byte) (*order, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.open[id]
	switch {
	case o.ended || o.run == nil:
		return nil, errors.New("nothing is run here")
	case r == nil:
		return nil, errors.New("no call of this number is under way")
	case !bytes.Equal(r.args, args):
		return nil, errors.New("this is not what was decided")
	case r.taken:
		return nil, errors.New("it was run already")
	}
	r.taken = true
	r.box.Add(1)
	return r, nil
}

// refuse notes that the server wants something run that nobody asked for. One that
// was called off in this very moment may do so; one that goes on with it is stopped.
func (o *orders) refuse(id int64, why error) {
	o.log.Warn("command refused: "+why.Error(), slog.String("server", o.server.Name), slog.Int64("call", id))
	o.mu.Lock()
	o.refused++
	over := o.refused > maxRefused
	o.mu.Unlock()
	if over {
		o.breach(errors.New("it asked for commands that were not dispatched to it"))
		return
	}
	if frame, err := answerFrame(id, nil, fmt.Errorf("refused: %w", why)); err == nil {
		o.out.offer(frame)
	}
}

func (o *orders) answer(ctx context.Context, id int64, body []byte, err error) {
	frame, ferr := answerFrame(id, body, err)
	if ferr != nil {
		o.log.ErrorContext(ctx, "answering with the result of a command", slog.Any("err", ferr))
		return
	}
	// If it cannot be sent, the call has ended or the server has.
	_ = o.out.send(ctx, frame)
}

// maxReason bounds what an answer says of a command that was not run: the server
// reads no longer header.
const maxReason = 2 << 10

func answerFrame(id int64, body []byte, err error) ([]byte, error) {
	var head struct {
		ID    int64  `json:"id"`
		Error string `json:"error,omitempty"`
	}
	head.ID = id
	if err != nil {
		body, head.Error = nil, err.Error()
		head.Error = string(bytes.ToValidUTF8([]byte(head.Error[:min(len(head.Error), maxReason)]), []byte("…")))
	}
	raw, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = ipc.WriteFrame(&b, raw, body)
	return b.Bytes(), err
}
