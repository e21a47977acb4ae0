package mitm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/iotest"
)

// replaying is a connection that only reads.
type replaying struct {
	net.Conn
	io.Reader
}

func (r replaying) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// FuzzStrict: what a server is given is the beginning of what came, in whatever pieces it
// came, and no body in it can be read in another way than to its end.
func FuzzStrict(f *testing.F) {
	for _, c := range readCases[httpCase](f, "testdata/http.jsonl") {
		f.Add([]byte(c.Send), false)
	}
	f.Fuzz(func(t *testing.T, sent []byte, bytewise bool) {
		var from io.Reader = bytes.NewReader(sent)
		if bytewise {
			from = iotest.OneByteReader(from)
		}
		strict := Strict(replaying{Reader: from}, Limits{}, nil)
		given, err := io.ReadAll(strict)
		whole := err == nil && strict.state == inHead && len(strict.buf) == 0
		if _, refused := errors.AsType[*RefusedError](err); err != nil && !refused {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(sent, given) {
			t.Fatalf("given %q of %q", given, sent)
		}
		r := bufio.NewReader(bytes.NewReader(given))
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return // it may refuse a target or a host that is left to it
			}
			if q.Method == http.MethodConnect || q.Header.Get("Upgrade") != "" {
				return
			}
			if _, err := io.Copy(io.Discard, q.Body); err != nil && whole {
				t.Fatalf("a body that was let through: %v in %q", err, given)
			}
			if len(q.TransferEncoding) > 0 && q.Header.Get("Content-Length") != "" {
				t.Fatalf("framed twice: %q", given)
			}
		}
	})
}
