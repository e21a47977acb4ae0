package dns

import (
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestMessages: testdata/messages.txt has a message in hexadecimal, and after => what is
// read of it: name and type, "refused" with the answer to it, or "nothing".
func TestMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		in, want, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if !ok {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(in, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		q, answerable, err := Parse(b)
		got := q.Name + " " + map[uint16]string{TypeA: "A", TypeAAAA: "AAAA", TypeHTTPS: "HTTPS", 16: "TXT"}[q.Type]
		switch {
		case !answerable:
			got = "nothing"
		case err != nil:
			got = "refused " + hex.EncodeToString(q.Answer(Format, 0))
		}
		if got != want {
			t.Errorf("%s is %q, want %q", in, got, want)
		}
	}
}

// FuzzParse: whatever is sent, an answer repeats its number and its question, and the
// name is one that a host can have.
func FuzzParse(f *testing.F) {
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04site\x04test\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, answerable, err := Parse(b)
		if !answerable {
			return
		}
		a := q.Answer(NoError, 30, netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("fd52:6633::1"))
		if len(a) < headLen || a[0] != b[0] || a[1] != b[1] || a[2]&0x80 == 0 {
			t.Fatalf("%x is answered by %x", b, a)
		}
		if err != nil {
			return
		}
		if strings.Trim(q.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(q.Name) > maxName {
			t.Errorf("%q", q.Name)
		}
		wants := q.Type == TypeA || q.Type == TypeAAAA
		if !strings.Contains(string(a), string(q.raw)) || (a[7] == 1) != wants {
			t.Errorf("%x is answered by %x", b, a)
		}
	})
}
