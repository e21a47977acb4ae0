package attach

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/sys/pty"
)

// TestSilent: what is shown again makes no terminal answer, and is otherwise what it was.
func TestSilent(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[cb\x1b[>0cc\x1b[6nd\x1b[?996ne": "abcde", "a\x1b[?2026$pb\x1b[>qc\x1b[?ud": "abcd", "a\x1b[18tb\x1b[21;0tc": "abc",
		"a\x1b]11;?\x07b\x1b]4;1;?\x1b\\c\x1b]0;title\x07d": "abc\x1b]0;title\x07d", "a\x1bP+q544e\x1b\\b\x1bP$qm\x1b\\c": "abc",
		"\x1b[31mred\x1b[0m \x1b[?25l\x1b[2J\x1b[3;4H\x1b[22;2t": "\x1b[31mred\x1b[0m \x1b[?25l\x1b[2J\x1b[3;4H\x1b[22;2t", "a\x05b\x1bZ": "ab",
	} {
		if got := string(silent([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestClipper: the clipboard is out of reach, however what a program writes is cut, and
// everything else passes.
func TestClipper(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b]52;c;aGk=\x07b": "ab", "a\x1b]0052;c;?\x1b\\b": "ab", "\x1b]5522;type=read\x1b\\x": "x", "a\x1b]0;52;title\x07b": "a\x1b]0;52;title\x07b",
		"\x1b]520;x\x07": "\x1b]520;x\x07", "\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\z": "\x1bPtmux;\x1b\x1b\\z", "\x1b[31m": "\x1b[31m", "\x1b]8;;http://a\x1b\\l": "\x1b]8;;http://a\x1b\\l",
	} {
		rapid.Check(t, func(t *rapid.T) {
			var c clipper
			var got []byte
			for rest := []byte(in); len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
				got = append(got, c.feed(rest[:n])...)
				rest = rest[n:]
			}
			if string(got) != want {
				t.Fatalf("%q became %q, want %q", in, got, want)
			}
		})
	}
}

// FuzzClipper: nothing that passes sets the clipboard.
func FuzzClipper(f *testing.F) {
	f.Add([]byte("a\x1b]52;c;aGk=\x07b\x1b\x1b]52;"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c clipper
		got := c.feed(data)
		if bytes.Contains(got, []byte("\x1b]52;")) || len(got) > len(data) {
			t.Fatalf("%q", got)
		}
	})
}

// TestPartKey: a sequence that is cut over two reads is waited for, and nothing else is.
func TestPartKey(t *testing.T) {
	for in, want := range map[string]string{
		"ab\x1b": "\x1b", "\x1b[": "\x1b[", "x\x1b[92;5": "\x1b[92;5", "\x1b[27;5;92": "\x1b[27;5;92", "\x1b[200": "\x1b[200", "\x1b[A": "", "ab": "", "": "",
		"\x1b[92;5u": "", "\x1bO": "", "\x1b[" + strings.Repeat("1", 100): "",
	} {
		if got := part([]byte(in)); in[len(in)-got:] != want {
			t.Errorf("of %q waits %q, want %q", in, in[len(in)-got:], want)
		}
	}
}

// TestSmallest: with several fronts the terminal is as large as the smallest, and larger again
// when that has left.
func TestSmallest(t *testing.T) {
	master, slave, err := pty.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	h := NewHolder("t", nil, func() {})
	go func() { _ = h.Relay(master) }()
	is := func(rows, columns uint16) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			h.mu.Lock()
			now := h.size
			h.mu.Unlock()
			if now == (pty.Size{Rows: rows, Columns: columns}) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the size is %v, want %d by %d", now, columns, rows)
			}
			runtime.Gosched()
		}
	}
	large, small := come(t, h), come(t, h)
	for _, p := range []peer{large, small} {
		go func() { _, _ = io.Copy(io.Discard, p) }()
	}
	for _, f := range []struct {
		p    peer
		size []byte
		r, c uint16
	}{{large, []byte{0, 50, 0, 200}, 50, 200}, {small, []byte{0, 60, 0, 80}, 50, 80}, {small, []byte{0, 24, 0, 80}, 24, 80}} {
		if err := writeFrame(f.p, frameSize, f.size); err != nil {
			t.Fatal(err)
		}
		is(f.r, f.c)
	}
	small.Close()
	is(50, 200)
}
