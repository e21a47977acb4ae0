package mitm

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A frameCase is one line of testdata/frames.jsonl: what one side sends, in hex.
type frameCase struct {
	ID, Name, Hex string
	Server        bool // sends it; else the client
	Zeros         int  // follow Hex
	Passed        int  // bytes that reach the other side
	Code          string
}

// TestFrameCases: what breaks a rule of frames passes no further.
func TestFrameCases(t *testing.T) {
	for _, c := range readCases[frameCase](t, "testdata/frames.jsonl") {
		sent, err := hex.DecodeString(strings.ReplaceAll(c.Hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, make([]byte, c.Zeros)...)
		var out bytes.Buffer
		f := &frames{from: bufio.NewReader(bytes.NewReader(sent)), to: &out, fromClient: !c.Server, limits: Limits{Frame: 1 << 20, Message: 1 << 21}}
		err = f.relay()
		why, _ := errors.AsType[*RefusedError](err)
		if c.Code == "" && why != nil || c.Code == "cut" && !errors.Is(err, io.ErrUnexpectedEOF) || (c.Code == "frame" || c.Code == codeLarge) && (why == nil || why.Code != c.Code) {
			t.Errorf("%s %s: %v, want %q", c.ID, c.Name, err, c.Code)
		}
		if out.Len() != c.Passed || !bytes.HasPrefix(sent, out.Bytes()) {
			t.Errorf("%s %s: %d bytes pass, want %d", c.ID, c.Name, out.Len(), c.Passed)
		}
	}
}

// payloads reads frames as a strict receiver does.
func payloads(b []byte, masked bool) (messages []string, err error) {
	r := bufio.NewReader(bytes.NewReader(b))
	var message []byte
	for {
		h, err := readFrameHead(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return messages, err
		}
		body := make([]byte, h.length)
		if _, err := io.ReadFull(r, body); err != nil {
			return messages, err
		}
		if h.masked != masked {
			return messages, errors.New("masked the wrong way")
		}
		if masked {
			mask(body, h.key, 0)
		}
		if h.op >= opClose {
			messages = append(messages, fmt.Sprintf("%d:%s", h.op, body))
			continue
		}
		if message = append(message, body...); h.fin {
			messages = append(messages, string(message))
			message = nil
		}
	}
}

// FuzzFrames: whatever one side sends, what reaches the other are valid frames with the
// payloads of those that were sent, looked at or not.
func FuzzFrames(f *testing.F) {
	for _, c := range readCases[frameCase](f, "testdata/frames.jsonl") {
		if sent, err := hex.DecodeString(strings.ReplaceAll(c.Hex, " ", "")); err == nil {
			f.Add(sent, c.Server)
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte, server bool) {
		var outs [2][]string
		for i := range outs {
			var out bytes.Buffer
			d := &frames{from: bufio.NewReader(bytes.NewReader(sent)), to: &out, fromClient: !server, limits: Limits{Frame: 1 << 16, Message: 1 << 17}}
			if i == 1 {
				d.filter = func() Filter { return &marker{} }
			}
			err := d.relay()
			got, broken := payloads(out.Bytes(), !server)
			if broken != nil && !errors.Is(broken, io.ErrUnexpectedEOF) || err == nil && broken != nil {
				t.Fatalf("looked at: %v: what passed cannot be read: %v (%v)", i == 1, broken, err)
			}
			outs[i] = got
		}
		for i, m := range outs[1] {
			if i < len(outs[0]) && m != outs[0][i] && !strings.Contains(outs[0][i], "secret") {
				t.Fatalf("message %d is %q, looked at %q", i, outs[0][i], m)
			}
		}
	})
}

// socket is the end of a WebSocket in a test.
type socket struct {
	io.ReadWriter
	r    *bufio.Reader
	mask bool
	fin  bool // of what was received last
}

func (s *socket) send(op byte, fin bool, payload string) error {
	h := frameHead{fin: fin, op: op, masked: s.mask, length: int64(len(payload)), key: [4]byte{1, 2, 3, 4}}
	if !s.mask {
		h.key = [4]byte{}
	}
	body := []byte(payload)
	mask(body, h.key, 0)
	_, err := s.Write(append(h.append(nil), body...))
	return err
}

func (s *socket) receive() (op byte, payload string, err error) {
	h, err := readFrameHead(s.r)
	if err != nil {
		return 0, "", err
	}
	s.fin = h.fin
	body := make([]byte, h.length)
	_, err = io.ReadFull(s.r, body)
	mask(body, h.key, 0)
	return h.op, string(body), err
}

// echoSocket answers every message, and closes when the client does.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	up, err := checkUpgrade(r)
	if up == nil || err != nil || r.Header.Get("Sec-Websocket-Extensions") != "" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	accept := up.accept
	if r.URL.Path == "/liar" {
		accept = "AAAA"
	}
	extra := ""
	if r.URL.Path == "/deflate" {
		extra = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%sSec-WebSocket-Accept: %s\r\n\r\n", extra, accept)
	s := &socket{ReadWriter: conn, r: rw.Reader}
	if r.URL.Path == "/masked" {
		s.mask = true
	}
	for {
		op, payload, err := s.receive()
		if err != nil || s.send(op, true, payload) != nil || op == opClose {
			return
		}
	}
}

// openSocket asks for a WebSocket over conn and returns the status.
func openSocket(t *testing.T, m *middle, path string) (*socket, int) {
	t.Helper()
	conn := m.dial(t, "example.com", protoH1)
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", path)
	s := &socket{ReadWriter: conn, r: bufio.NewReader(conn), mask: true}
	res, err := http.ReadResponse(s.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, res.StatusCode
}

// TestWebSocket: messages pass both ways, are looked at, and end where a rule is broken.
func TestWebSocket(t *testing.T) {
	f := &Forwarder{Reply: func(http.Header) Filter { return &marker{} }, Limits: Limits{Frame: 1 << 20, Message: 1 << 20}}
	m, _ := upstream(t, f, echoSocket)
	s, status := openSocket(t, m, "/")
	if status != http.StatusSwitchingProtocols {
		t.Fatal(status)
	}
	for _, payload := range []string{"hello", "", strings.Repeat("x", 200), strings.Repeat("y", 100_000)} {
		if err := s.send(opText, true, payload); err != nil {
			t.Fatal(err)
		}
		var got string
		for len(got) < len(payload) || payload == "" {
			_, part, err := s.receive()
			if got += part; err != nil || part == "" {
				break
			}
		}
		if got != payload {
			t.Errorf("%d bytes of %d come back", len(got), len(payload))
		}
		// What the filter held back ends the message.
		for len(got) > 0 && s.r.Buffered() > 0 {
			if _, _, err := s.receive(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.send(opText, true, "a secret"); err != nil {
		t.Fatal(err)
	}
	var got string
	for len(got) < 8 {
		_, part, err := s.receive()
		if err != nil {
			t.Fatal(err)
		}
		got += part
	}
	if got != "a xxxxxx" {
		t.Errorf("a message that is looked at: %q", got)
	}
	if err := s.send(opPing, true, "p"); err != nil {
		t.Fatal(err)
	}
	if op, payload, err := s.receive(); err != nil || op != opPing || payload != "p" {
		t.Errorf("%d %q %v", op, payload, err)
	}
	if err := s.send(opClose, true, "\x03\xe8"); err != nil {
		t.Fatal(err)
	}
	if op, _, err := s.receive(); err != nil || op != opClose {
		t.Errorf("%d %v", op, err)
	}
	for path, want := range map[string]int{"/liar": http.StatusBadGateway, "/deflate": http.StatusBadGateway, "/masked": http.StatusSwitchingProtocols} {
		s, status := openSocket(t, m, path)
		if status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
		if status == http.StatusSwitchingProtocols {
			if err := s.send(opText, true, "hello"); err != nil {
				t.Fatal(err)
			}
			if op, payload, err := s.receive(); err != nil || op != opClose || payload != "\x03\xe9" {
				t.Errorf("%s: a frame that breaks a rule: %d %q %v", path, op, payload, err)
			}
		}
	}
}

// TestFramesAreBounded: a message that never ends does.
func TestFramesAreBounded(t *testing.T) {
	one := frameHead{op: opText, length: 1000, masked: true}
	more := frameHead{op: opContinue, length: 1000, masked: true}
	sent := slices.Concat(one.append(nil), make([]byte, 1000), bytes.Repeat(slices.Concat(more.append(nil), make([]byte, 1000)), 2000))
	f := &frames{from: bufio.NewReader(bytes.NewReader(sent)), to: io.Discard, fromClient: true, limits: Limits{Frame: 1 << 20, Message: 1 << 20}}
	if why, _ := errors.AsType[*RefusedError](f.relay()); why == nil || f.passed > 1<<20 {
		t.Errorf("%d bytes of a message pass", f.passed)
	}
}
