package mediator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/ipc"
)

// withChannel starts what its Starter does, with a channel whose other end goes to ends.
type withChannel struct {
	Starter
	ends chan net.Conn
}

func (w withChannel) Start(ctx context.Context, s Server) (*Process, error) {
	p, err := w.Starter.Start(ctx, s)
	if err == nil {
		ours, theirs := net.Pipe()
		p.Channel = ours
		w.ends <- theirs
	}
	return p, err
}

// A fakeCommander runs "hold" until its context ends, and all else at once.
type fakeCommander struct {
	mu   sync.Mutex
	ran  []string
	busy int
	held chan struct{} // gets a value when a command is held
}

func (f *fakeCommander) Run(ctx context.Context, _ Server, t act.Ticket, args []byte) ([]byte, error) {
	f.mu.Lock()
	f.ran = append(f.ran, string(args))
	f.busy++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy--
	}()
	if t.ID == "" {
		return nil, errors.New("no ticket")
	}
	if bytes.Contains(args, []byte("hold")) {
		f.held <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	_, what, _ := strings.Cut(string(args), `:`)
	return []byte(`{"ran":` + what), nil
}

// sending writes a frame with a header that stands for what a step says.
func sending(step string) (head, body string) {
	op, rest, _ := strings.Cut(step, " ")
	if op == "raw" {
		return rest, ""
	}
	id, body, _ := strings.Cut(rest, " ")
	return `{"op":"` + op + `","id":` + id + `}`, body
}

// scripted is a server that does what steps say, when it has heard all calls. It tells
// heard of each, and is told by settled of each answer.
func scripted(t *testing.T, steps []string, calls int, ends <-chan net.Conn, heard chan<- struct{}, settled <-chan struct{}) fakeServer {
	return func(p *fakeProcess) {
		p.open(aTool)
		conn := <-ends
		defer conn.Close()
		for range calls {
			p.hear()
			heard <- struct{}{}
		}
		for _, step := range steps {
			n := 1
			if rest, ok := strings.CutPrefix(step, "flood "); ok {
				_, _ = fmt.Sscan(rest, &n)
				_, step, _ = strings.Cut(rest, " ")
			}
			switch word, rest, _ := strings.Cut(step, " "); word {
			case "got":
				id, want, _ := strings.Cut(rest, " ")
				head, body, err := ipc.ReadFrame(conn, 1<<12, 1<<20)
				if got := string(head) + string(body); err != nil || !strings.Contains(got, `"id":`+id) || !strings.Contains(got, want) {
					t.Errorf("%s: got %s %v", step, got, err)
				}
			case "answer":
				p.say(`{"jsonrpc":"2.0","id":` + rest + `,"result":{"answered":` + rest + `}}`)
			case "settled":
				<-settled
			case "stopped":
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				<-p.killed
				return
			case "bytes":
				_, _ = io.WriteString(conn, rest)
			default:
				head, body := sending(step)
				for range n {
					_ = ipc.WriteFrame(conn, []byte(head), []byte(body)) // it may be stopped by now
				}
			}
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		p.drain()
	}
}

// TestHostileExec: M7, against servers that ask for what they should not.
func TestHostileExec(t *testing.T) {
	a, err := txtar.ParseFile("testdata/orders.txtar")
	if err != nil || len(a.Files)%3 != 0 || len(a.Files) < 30 {
		t.Fatal(err, len(a.Files))
	}
	lines := func(f txtar.File) []string {
		return strings.FieldsFunc(string(f.Data), func(r rune) bool { return r == '\n' })
	}
	for i := 0; i < len(a.Files); i += 3 {
		name, _, _ := strings.Cut(a.Files[i].Name, ":")
		t.Run(name, func(t *testing.T) {
			calls, steps, want := lines(a.Files[i]), lines(a.Files[i+1]), lines(a.Files[i+2])
			ends, heard, settled := make(chan net.Conn, 10), make(chan struct{}, 10), make(chan struct{}, 10)
			cmd := &fakeCommander{held: make(chan struct{}, 10)}
			conv := converse(t, deciding(""), map[string][]fakeServer{"exec": {scripted(t, steps, len(calls), ends, heard, settled)}}, func(o *Options) {
				o.Starter, o.Commander = withChannel{o.Starter, ends}, cmd
			})
			conv.open()
			for n, args := range calls {
				conv.send(callLine(fmt.Sprint(n), "a", args))
				<-heard // one after the other, so that ids are known
			}
			stopped := slices.Contains(steps, "stopped")
			for range calls {
				if got := conv.receive(); strings.Contains(got, `"code":"unavailable"`) != stopped {
					t.Errorf("received %s", got)
				}
				cmd.mu.Lock()
				busy := cmd.busy
				cmd.mu.Unlock()
				if len(calls) == 1 && busy != 0 {
					t.Error("a command runs although its call is over")
				}
				settled <- struct{}{}
			}
			conv.close()
			if !slices.Equal(cmd.ran, want) {
				t.Errorf("ran %q, want %q", cmd.ran, want)
			}
		})
	}
}

// TestCancelledCommand: what the client calls off has ended when that is on record.
func TestCancelledCommand(t *testing.T) {
	ends := make(chan net.Conn, 1)
	cmd := &fakeCommander{held: make(chan struct{}, 1)}
	conv := converse(t, deciding(""), map[string][]fakeServer{"exec": {scripted(t, []string{`run 3 {"command":"hold"}`}, 1, ends, make(chan struct{}, 1), nil)}}, func(o *Options) {
		o.Starter, o.Commander = withChannel{o.Starter, ends}, cmd
	})
	conv.open()
	conv.send(callLine("1", "a", `{"command":"hold"}`))
	<-cmd.held
	conv.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	for len(conv.d.logged("finish exec.a")) == 0 {
		runtime.Gosched()
	}
	cmd.mu.Lock()
	defer cmd.mu.Unlock()
	if cmd.busy != 0 {
		t.Error("it still runs")
	}
}

// Property: whatever is asked in whatever order, nothing is run but what was placed
// and not withdrawn, with the same bytes, once.
func TestOrdersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cmd := &fakeCommander{}
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		o := newOrders(Server{Name: "exec"}, cmd, ours, Options{}.withDefaults().Log, func(error) {})
		open, want := map[int64]string{}, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := rapid.Int64Range(1, 4).Draw(t, "id")
			args := `{"command":"` + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "args") + `"}`
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if _, used := open[id]; !used {
					o.place(context.Background(), id, act.Ticket{ID: "s/1"}, []byte(args))
					open[id] = args
				}
			case 1:
				o.withdraw(id)
				delete(open, id)
			case 2:
				o.callOff(id)
			default:
				if open[id] == args {
					want++
					open[id] = "taken"
				}
				o.start(id, []byte(args))
			}
		}
		for id := range open {
			o.withdraw(id)
		}
		if len(cmd.ran) != want || cmd.busy != 0 {
			t.Fatalf("%d ran, %d still do, want %d", len(cmd.ran), cmd.busy, want)
		}
		theirs.Close()
		go o.serve()
		o.close()
	})
}

func FuzzReadAsk(f *testing.F) {
	for _, head := range []string{`{"op":"run","id":3}`, `{"op":"cancel","id":3}`, `{"op":"run","id":3,"id":4}`, `{"op":"run","id":1e1}`, `x`} {
		var b bytes.Buffer
		if err := ipc.WriteFrame(&b, []byte(head), []byte(`{"command":"x"}`)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := bufio.NewReader(bytes.NewReader(raw))
		for {
			a, body, err := readAsk(in)
			if err != nil {
				return
			}
			if a.ID <= 0 || a.Op != "run" && a.Op != "cancel" || a.Op == "cancel" && len(body) > 0 || len(body) > strictjson.MaxSize {
				t.Fatalf("accepts %+v with %d bytes", a, len(body))
			}
			// What is sent back can be read, whatever it was.
			frame, err := answerFrame(a.ID, nil, errors.New(strings.ToValidUTF8(string(body), "?")+"."))
			if err != nil {
				t.Fatal(err)
			}
			if head, _, err := ipc.ReadFrame(bytes.NewReader(frame), 16<<10, 0); err != nil || strictjson.Check(head) != nil {
				t.Fatalf("answers %q, %v", head, err)
			}
		}
	})
}
