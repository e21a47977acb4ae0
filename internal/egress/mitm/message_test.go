package mitm

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// A messageCase is one line of testdata/messages.jsonl: what a client sends to a server that
// sends it back, and with which status each side is told that it is over.
type messageCase struct {
	Name string
	Send []struct {
		Op      byte
		Payload string
		Zeros   int
		Status  uint16 // of a close frame
		More    bool
		Wait    bool // until what comes back has
	}
	Deny           string   // "binary", "in" or "third"
	Got            []string // that come back
	Client, Server int      // statuses; 0: none of ours; -1: whichever
	Reason         string   // to the client
}

// allows is who decides about the messages of c.
func (c messageCase) allows(m Message) error {
	if c.Deny == "binary" && m.Binary || c.Deny == "in" && !m.Out || c.Deny == "third" && m.Out && m.Number == 3 {
		return refusal("message", "no clause allows it")
	}
	return nil
}

// TestMessageCases: what a rule of messages does not let pass closes the WebSocket on both
// sides, with a status that says whose fault it was.
func TestMessageCases(t *testing.T) {
	for _, c := range readCases[messageCase](t, "testdata/messages.jsonl") {
		told := make(chan int, 1)
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			echoes(w, r, func(closed int) { told <- closed })
		})
		f := &Forwarder{
			Request: func(http.Header) Filter { return &marker{} }, Message: c.allows,
			Limits: Limits{Frame: 1 << 16, Message: 1 << 17},
		}
		m, _ := upstream(t, f, server)
		s, status := openSocket(t, m, "/")
		if status != http.StatusSwitchingProtocols {
			t.Fatal(c.Name, status)
		}
		var got []string
		for _, one := range c.Send {
			if one.Wait {
				got, _, _ = s.messages(len(c.Got), false)
			}
			payload := one.Payload + strings.Repeat("\x00", one.Zeros)
			if one.Status > 0 {
				payload = string(binary.BigEndian.AppendUint16(nil, one.Status))
			}
			_ = s.send(one.Op, !one.More, payload) // what is refused early is not taken whole
		}
		more, closed, reason := s.messages(len(c.Got)-len(got), c.Client >= 0)
		got = append(got, more...)
		if !slices.Equal(got, c.Got) || c.Client > 0 && closed != c.Client || c.Reason != "" && reason != c.Reason {
			t.Errorf("%s: %q, closed with %d %q", c.Name, got, closed, reason)
		}
		if c.Server > 0 {
			select {
			case was := <-told:
				if was != c.Server {
					t.Errorf("%s: the server is told %d, want %d", c.Name, was, c.Server)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s: the server is told nothing", c.Name)
			}
		}
	}
}

// messages receives n messages, and then a close frame if there is one to wait for.
func (s *socket) messages(n int, end bool) (got []string, closed int, reason string) {
	var message string
	begun := false
	for end || len(got) < n {
		op, payload, err := s.receive()
		if err != nil {
			return got, closed, reason
		}
		if op == opClose {
			if len(payload) >= 2 {
				closed, reason = int(binary.BigEndian.Uint16([]byte(payload))), payload[2:]
			}
			return got, closed, reason
		}
		if op != opContinue && begun {
			got, message = append(got, message), ""
		}
		begun = true
		message += payload
		if s.fin {
			got, message, begun = append(got, message), "", false
		}
	}
	return got, closed, reason
}

// echoes sends what comes back, and says with which status it was closed.
func echoes(w http.ResponseWriter, r *http.Request, closed func(int)) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	up, err := checkUpgrade(r)
	if err != nil || up == nil {
		return
	}
	_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + up.accept + "\r\n\r\n"))
	s := &socket{ReadWriter: conn, r: rw.Reader}
	for {
		op, payload, err := s.receive()
		if err != nil {
			closed(0)
			return
		}
		if op == opClose {
			status := 0
			if len(payload) >= 2 {
				status = int(binary.BigEndian.Uint16([]byte(payload)))
			}
			closed(status)
		}
		if s.send(op, s.fin, payload) != nil || op == opClose {
			return
		}
	}
}
