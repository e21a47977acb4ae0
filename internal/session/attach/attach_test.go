package attach

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/sys/pty"
)

// TestFrames (A4): what is written is what is read, in pieces of at most one frame; what is
// cut off, or too long, is an error.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.Byte().Draw(t, "kind")
		want := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
		if rapid.Bool().Draw(t, "long") {
			want = bytes.Repeat(append(want, 7), maxFrame/50)
		}
		var b bytes.Buffer
		if err := writeFrame(&b, kind, want); err != nil {
			t.Fatal(err)
		}
		whole := slices.Clone(b.Bytes())
		var got []byte
		for {
			k, p, err := readFrame(&b)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || k != kind || len(p) > maxFrame {
				t.Fatalf("%v, kind %q, %d bytes", err, k, len(p))
			}
			got = append(got, p...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes became %d", len(want), len(got))
		}
		cut := bytes.NewReader(whole[:len(whole)-1])
		for {
			if _, _, err := readFrame(cut); err != nil {
				break
			}
		}
	})
	if _, _, err := readFrame(strings.NewReader("o\xff\xff\xff\xff")); !errors.Is(err, errFrame) {
		t.Errorf("a frame that is too long: %v", err)
	}
}

// FuzzFrame (A4): whatever a peer sends, reading it ends.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x01a"))
	f.Add([]byte("w\x00\x00\x00\x04\x00\x01\x00\x02x\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			_, p, err := readFrame(r)
			if err != nil {
				return
			}
			if len(p) > len(data) {
				t.Fatalf("%d bytes of %d", len(p), len(data))
			}
		}
	})
}

// TestKey: the hot-key is found in each form that terminals send, and nothing else is taken
// for it.
func TestKey(t *testing.T) {
	f := Front{Key: 0x1c, Menu: func(context.Context, State, bool) Choice { return Back }}
	for in, want := range map[string]string{
		"ab\x1ccd": "ab|\x1c|cd", "\x1b[92;5u": "|\x1b[92;5u|", "x\x1b[27;5;92~y": "x|\x1b[27;5;92~|y", "plain \x1b[A": "plain \x1b[A||", "": "||", "\x1c\x1c": "|\x1c|\x1c",
		"a\x1b[200~b\x1cc\x1b[201~d": "a\x1b[200~b\x1cc\x1b[201~d||", "\x1b[200~b\x1b[201~\x1cd": "\x1b[200~b\x1b[201~|\x1c|d", "\x1c\x1b[200~b": "|\x1c|\x1b[200~b", "\x1b[200~b\x1c": "\x1b[200~b\x1c||",
		// What a program can have the terminal tell besides, so that the key would not be known.
		"\x1b[92;5:1u": "|\x1b[92;5:1u|", "\x1b[92::92;5u": "|\x1b[92::92;5u|", "\x1b[92:124:92;5:2;28u": "|\x1b[92:124:92;5:2;28u|", "\x1b[92;133u": "|\x1b[92;133u|",
		"\x1b[92;69:1u": "|\x1b[92;69:1u|", "\x1b[27;133;92~": "|\x1b[27;133;92~|", "\x1b[92;5:3u": "\x1b[92;5:3u||", "\x1b[92;6u": "\x1b[92;6u||", "\x1b[97;5u\x1b[92;5u": "\x1b[97;5u|\x1b[92;5u|",
	} {
		paste := false
		before, key, after := f.cut([]byte(in), &paste)
		if got := string(before) + "|" + string(key) + "|" + string(after); got != want {
			t.Errorf("%q is cut into %q, want %q", in, got, want)
		}
	}
	if _, key, _ := (Front{Key: 1, Menu: f.Menu}).cut([]byte("\x1b[97;5u"), new(bool)); string(key) != "\x1b[97;5u" {
		t.Errorf("Ctrl-A is %q", key)
	}
	if before, key, _ := (Front{}).cut([]byte("\x1c"), new(bool)); len(before) != 1 || key != nil {
		t.Error("a front without a key has one")
	}
}

// A peer is a front of a test.
type peer struct {
	t *testing.T
	net.Conn
}

func come(t *testing.T, h *Holder) peer {
	t.Helper()
	a, b := net.Pipe()
	h.Add(b)
	t.Cleanup(func() { a.Close() })
	return peer{t, a}
}

// until reads frames until one of kind holds text.
func (p peer) until(kind byte, text string) {
	p.t.Helper()
	if err := p.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	var seen []byte
	for {
		k, b, err := readFrame(p)
		if err != nil {
			p.t.Fatalf("%v; no %q in frames of kind %q: %q", err, text, kind, seen)
		}
		if k == kind {
			if seen = append(seen, b...); strings.Contains(string(seen), text) {
				return
			}
		}
	}
}

// TestHolder (A1, A2): fronts come and go; each sees what was shown, and types; one that does
// not read holds up nobody; the end is told.
func TestHolder(t *testing.T) {
	master, slave, err := pty.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	stopped := make(chan struct{}, 1)
	h := NewHolder("a title", &log, func() { stopped <- struct{}{} })
	if _, err := h.Write([]byte("told before\n")); err != nil {
		t.Fatal(err)
	}
	first := come(t, h)
	first.until(frameState, "a title")
	first.until(frameMessage, "told before")
	relayed := make(chan error, 1)
	go func() { relayed <- h.Relay(master) }()
	first.until(frameState, `"started":true`)
	if err := writeFrame(first, frameInput, []byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	if n, err := slave.Read(line); err != nil || string(line[:n]) != "typed\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	if _, err := slave.WriteString("shown\n"); err != nil {
		t.Fatal(err)
	}
	first.until(frameOutput, "shown")
	first.Close()
	idle := come(t, h) // reads nothing
	defer idle.Close()
	second := come(t, h)
	second.until(frameOutput, "shown") // what was there before
	odd := come(t, h)
	go func() { _, _ = io.Copy(io.Discard, odd) }()
	if err := writeFrame(odd, 'Z', nil); err != nil {
		t.Fatal(err)
	}
	if err := writeFrame(second, frameSize, []byte{0, 30, 0, 90}); err != nil {
		t.Fatal(err)
	}
	if err := writeFrame(second, frameStop, nil); err != nil {
		t.Fatal(err)
	}
	<-stopped
	idle.Close()
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-relayed; err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { h.End(7); close(done) }()
	second.until(frameEnd, "\x00\x07")
	second.Close()
	<-done
	if !strings.Contains(log.String(), "shown") {
		t.Errorf("kept %q", log.String())
	}
	late := come(t, h)
	if _, _, err := readFrame(late); err == nil {
		t.Error("somebody came after the end")
	}
	if err := master.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
