package exec

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/sys/ipc"
)

// A world is a server between a client, which writes lines, and who runs commands,
// who reads and writes frames.
type world struct {
	t       *testing.T
	say     io.WriteCloser
	hear    *bufio.Reader
	asked   io.Reader
	answers io.WriteCloser
	ended   chan error
}

func newWorld(t *testing.T) *world {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	reqR, reqW := io.Pipe()
	ansR, ansW := io.Pipe()
	w := &world{t: t, say: inW, hear: bufio.NewReader(outR), asked: reqR, answers: ansW, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		w.ended <- Serve(ctx, inR, outW, Options{Requests: reqW, Answers: ansR})
		outW.Close()
	}()
	t.Cleanup(func() {
		cancel()
		inW.Close()
		ansW.Close()
		reqR.Close()
		_, _ = io.Copy(io.Discard, outR)
	})
	w.line(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	w.answer()
	w.line(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return w
}

func (w *world) line(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w.say, s+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) call(id int, args string) {
	w.t.Helper()
	n := strconv.Itoa(id)
	w.line(`{"jsonrpc":"2.0","id":` + n + `,"method":"tools/call","params":{"name":"run_command","_meta":{"progressToken":` + n + `},"arguments":` + args + `}}`)
}

func (w *world) answer() string {
	w.t.Helper()
	s, err := w.hear.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) request() (string, string) {
	w.t.Helper()
	head, body, err := ipc.ReadFrame(w.asked, 1<<10, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(head), string(body)
}

func (w *world) reply(head, body string) {
	w.t.Helper()
	if err := ipc.WriteFrame(w.answers, []byte(head), []byte(body)); err != nil {
		w.t.Fatal(err)
	}
}

// TestPassedOn: EX1, whatever the arguments are, and results find their calls.
func TestPassedOn(t *testing.T) {
	w := newWorld(t)
	for i, args := range []string{
		`{"command":"ls"}`, `{ "command" : "ls" ,	"x":1.0e+2}`, `{"b":1,"a":"\u00e9é\/\ud83d\ude00"}`, `{}`, `{"command":"a\nb","command_":null}`,
		`{"n":12345678901234567890.10}`,
	} {
		w.call(i+10, args)
		head, body := w.request()
		if want := `{"op":"run","id":` + strconv.Itoa(i+10) + `}`; head != want || body != args {
			t.Errorf("asked %s %q, want %s %q", head, body, want, args)
		}
		w.reply(`{"id":`+strconv.Itoa(i+10)+`}`, `{"exit_status":3,"stdout":"\u001b[2J"}`)
		if got := w.answer(); !strings.Contains(got, `{\"exit_status\":3,\"stdout\":\"\\u001b[2J\"}`) || strings.Contains(got, `"isError":true`) || !strings.Contains(got, `"structuredContent":{"exit_status":3`) {
			t.Error(got)
		}
	}
	w.call(50, `{"a":1}`)
	w.call(51, `{"a":2}`)
	first, _ := w.request()
	second, _ := w.request()
	if first == second {
		t.Error("one call was asked for twice")
	}
	w.reply(`{"id":51}`, `{"of":51}`)
	if got := w.answer(); !strings.Contains(got, `"id":51`) || !strings.Contains(got, `{"of":51}`) {
		t.Error(got)
	}
	w.reply(`{"id":50,"error":"refused: so"}`, ``)
	if got := w.answer(); !strings.Contains(got, `"id":50`) || !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "refused: so") {
		t.Error(got)
	}
}

// TestCalledOff: EX2.
func TestCalledOff(t *testing.T) {
	w := newWorld(t)
	w.call(7, `{"command":"sleep 9"}`)
	w.request()
	w.line(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if head, body := w.request(); head != `{"op":"cancel","id":7}` || body != "" {
		t.Errorf("asked %s %q", head, body)
	}
	w.reply(`{"id":7}`, `{"late":true}`) // nobody waits for it
	w.call(8, `{}`)
	for {
		if head, _ := w.request(); head == `{"op":"run","id":8}` {
			break
		}
	}
	w.reply(`{"id":8}`, `{"next":true}`)
	for !strings.Contains(w.answer(), `{"next":true}`) {
	}
}

// TestGone: calls end when who runs commands does, and without a token there is none.
func TestGone(t *testing.T) {
	w := newWorld(t)
	w.line(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_command","arguments":{}}}`)
	if got := w.answer(); !strings.Contains(got, "no progress token") {
		t.Error(got)
	}
	w.call(4, `{}`)
	w.request()
	w.answers.Close()
	if err := <-w.ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := Serve(t.Context(), nil, nil, Options{}); err == nil {
		t.Error("serves without anybody to run commands")
	}
}

// TestBroken: EX3.
func TestBroken(t *testing.T) {
	for _, frame := range [][2]string{{`{"id":1}`, `[]`}, {`{"id":1}`, ``}, {`{"id":1}`, `{"a":`}, {`{"id":"1"}`, `{}`}, {`{"id":1,"id":1}`, `{}`}, {`{"id":1,"x":1}`, `{}`}, {`x`, `{}`}} {
		w := newWorld(t)
		w.reply(frame[0], frame[1])
		if err := <-w.ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%q: Serve ended with %v", frame, err)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte(`{"id":1}`), []byte(`{"a":1}`))
	f.Add([]byte(`{"id":1,"error":"no"}`), []byte(``))
	f.Add([]byte(`{"id":9223372036854775808}`), []byte(`{`))
	f.Fuzz(func(t *testing.T, head, body []byte) {
		_, a, err := readAnswer(head, body)
		if err != nil {
			return
		}
		if !json.Valid(head) || a.err == nil && (!json.Valid(a.body) || !bytes.HasPrefix(a.body, []byte("{"))) {
			t.Errorf("accepts %q %q", head, body)
		}
	})
}
