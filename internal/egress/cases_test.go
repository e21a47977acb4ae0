package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/egress/bridge"
)

// clientHello is one with these extensions.
func clientHello(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := slices.Concat(extensions...)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func extension(kind uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, kind)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

func serverName(name string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(name)+3))
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
	return extension(extServerName, append(b, name...))
}

// opener says that TLS was to be opened, and for whom.
type opener struct{}

func (opener) Serve(_ context.Context, conn net.Conn, host string, _ http.Handler) error {
	defer conn.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(conn, first); err != nil || first[0] != 22 {
		return errors.New("it does not begin with its hello")
	}
	_, err := fmt.Fprintf(conn, "opened %s\n", host)
	return err
}

// raw is a server that answers the first bytes of a connection with their number.
func raw(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1<<10)
				n, _ := c.Read(b)
				_, _ = fmt.Fprintf(c, "raw %v\n", n > 0)
			}()
		}
	}()
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}

// TestCases: testdata/cases.txt says at its beginning how it is read.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	http, tcp := port(echo(t)), raw(t)
	body := strings.NewReplacer("$P", http, "$R", tcp).Replace(string(text))
	for _, block := range strings.Split(body, "\n== ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newCase(t, strings.Split(rest, "\n"))
		})
	}
}

// A player plays one case.
type player struct {
	*testing.T
	*rig
	lines []string
	conn  *net.UnixConn
	in    *bufio.Reader
	out   bytes.Buffer // to be sent before anything is read
}

func newCase(t *testing.T, lines []string) {
	p := &player{T: t}
	var rules []string
	names := map[string]string{}
	kind, dst := bridge.KindProxy, "127.0.0.1:3128"
	for _, l := range lines {
		word, arg, _ := strings.Cut(l, " ")
		switch word {
		case "allow", "tunnel", "escalate":
			rules = append(rules, l)
		case "name":
			host, addrs, _ := strings.Cut(arg, "=")
			names[host] = addrs
		case "direct":
			kind, dst = bridge.KindDirect, arg
		default:
			p.lines = append(p.lines, l)
		}
	}
	p.rig = newRig(t, func(o *Options) { o.Intercept = opener{} }, rules...)
	maps.Copy(p.names, names)
	p.conn = p.dial(t, kind, dst)
	p.in = bufio.NewReader(p.conn)
	for _, l := range p.lines {
		p.step(l)
	}
	p.flush()
}

func (p *player) flush() {
	if p.out.Len() > 0 {
		_, _ = p.conn.Write(p.out.Bytes()) // it may be closed: what is read then says so
		p.out.Reset()
	}
}

func (p *player) step(line string) {
	p.Helper()
	word, arg, _ := strings.Cut(line, " ")
	if !strings.HasPrefix(word, ">") {
		p.flush()
	}
	switch word {
	case "", "#":
	case ">":
		p.out.WriteString(arg + "\r\n")
	case ">>":
		s, err := strconv.Unquote(arg)
		if err != nil {
			p.Fatal(line)
		}
		p.out.WriteString(s)
	case ">x":
		b, err := hex.DecodeString(strings.ReplaceAll(arg, " ", ""))
		if err != nil {
			p.Fatal(line)
		}
		p.out.Write(b)
	case ">long":
		n, _ := strconv.Atoi(arg)
		p.out.WriteString(strings.Repeat("a", n))
	case "hello":
		p.hello(arg)
	case "<", "<<":
		p.expect(word, arg)
	case "closed":
		if b, err := p.in.ReadByte(); err == nil {
			p.Errorf("%q came, and the connection should be closed", b)
		}
	case "asked", "looked", "ended":
		p.check(word, arg)
	default:
		p.Fatalf("%q is no step", line)
	}
}

func (p *player) hello(arg string) {
	var all [][]byte
	for part := range strings.FieldsSeq(arg) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "sni":
			all = append(all, serverName(value))
		case "ech":
			all = append(all, extension(extECH, []byte{0}))
		case "alpn":
			all = append(all, extension(extALPN, append([]byte{0, byte(len(value) + 1), byte(len(value))}, value...)))
		}
	}
	p.out.Write(clientHello(all...))
	p.flush()
}

// expect reads the head of a reply and compares its status, or so many bytes.
func (p *player) expect(word, arg string) {
	p.Helper()
	if word == "<" {
		res, err := http.ReadResponse(p.in, nil)
		if err != nil {
			p.Fatalf("want %s: %v", arg, err)
		}
		if got := strconv.Itoa(res.StatusCode); got != arg {
			p.Errorf("status %s, want %s", got, arg)
		}
		if res.ContentLength > 0 || len(res.TransferEncoding) > 0 || res.ContentLength < 0 && res.StatusCode != http.StatusOK {
			_, _ = io.Copy(io.Discard, res.Body)
		}
		return
	}
	want, err := strconv.Unquote(arg)
	if err != nil {
		p.Fatal(arg)
	}
	got := make([]byte, len(want))
	n, _ := io.ReadFull(p.in, got)
	if string(got[:n]) != want {
		p.Errorf("%q came, want %q", got[:n], want)
	}
}

// check compares what was asked, looked up, or ended.
func (p *player) check(word, arg string) {
	p.Helper()
	if word == "ended" {
		_ = p.conn.Close()
		if err := p.stop(); err != nil {
			p.Fatal(err)
		}
	}
	p.decider.mu.Lock()
	defer p.decider.mu.Unlock()
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	got := map[string][]string{"asked": p.decider.asked, "looked": p.table.asked, "ended": p.ended}[word]
	if all := strings.Join(got, "; "); word == "ended" && !strings.Contains(all, arg) || word != "ended" && all != arg {
		p.Errorf("%s %q, want %q", word, all, arg)
	}
}
