package bridge

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Each line of testdata/lines.txt is "ok" or "no", and a line as a Go string.
func TestLines(t *testing.T) {
	f, err := os.Open("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		want, quoted, _ := strings.Cut(in.Text(), " ")
		line, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
		rest := strings.NewReader(line + "rest")
		p, err := ReadPreamble(rest)
		if (err == nil) != (want == "ok") {
			t.Errorf("%q: %v, %v", line, p, err)
		}
		if left, _ := io.ReadAll(rest); err == nil && string(left) != "rest" {
			t.Errorf("%q: %q is left of what follows", line, left)
		}
	}
}

func TestLineOfWhatCannotBe(t *testing.T) {
	to := netip.MustParseAddrPort("198.18.0.1:443")
	for _, p := range []Preamble{
		{},
		{Kind: "x", Dst: to},
		{Kind: KindProxy},
		{Kind: KindProxy, Dst: to, PID: -1},
		{Kind: KindProxy, Dst: netip.MustParseAddrPort("1.2.3.4:0")},
		{Kind: KindProxy, Dst: netip.MustParseAddrPort("[fe80::1%lo]:1")},
	} {
		if line, err := p.Line(); err == nil {
			t.Errorf("%v: %s", p, line)
		}
	}
	mapped := Preamble{Kind: KindDirect, Dst: netip.MustParseAddrPort("[::ffff:198.18.0.1]:443")}
	if line, err := mapped.Line(); err != nil || !strings.Contains(string(line), `"198.18.0.1:443"`) {
		t.Errorf("%s, %v", line, err)
	}
}

func FuzzPreamble(f *testing.F) {
	f.Add(`{"v":1,"kind":"proxy","dst":"127.0.0.1:3128","pid":0}` + "\n")
	f.Add(`{"v":1,"kind":"direct","dst":"[fd00::1]:443","pid":7}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ReadPreamble(strings.NewReader(text))
		if err != nil {
			return
		}
		line, err := p.Line()
		if err != nil || !strings.HasPrefix(text, string(line)) {
			t.Errorf("%q is read as %v, which is %q (%v)", text, p, line, err)
		}
	})
}

func FuzzDatagrams(f *testing.F) {
	f.Add([]byte("\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x01\x01a\x00\x00\x01\x00\x01"), []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x00\x00\x01\x00\x01\x00\x00\x29\x10\x00"), 600)
	f.Fuzz(func(t *testing.T, answer, query []byte, more int) {
		if len(query) < headSize || len(answer) < headSize || more < 0 || more > maxMessage {
			return
		}
		answer = append(answer, make([]byte, more)...)
		cut := fit(answer, query)
		switch {
		case len(cut) > datagramSize(query):
			t.Errorf("%d bytes for one that takes %d", len(cut), datagramSize(query))
		case len(cut) < len(answer) && cut[2]&truncated == 0:
			t.Error("it is cut short and does not say so")
		case len(answer) <= plainSize && len(cut) != len(answer):
			t.Error("it is cut short for nothing")
		}
	})
}
