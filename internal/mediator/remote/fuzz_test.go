package remote

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"ringfence/internal/act/strictjson"
)

// TestEvents reads event streams, whole and byte by byte.
func TestEvents(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\n":                                      "|a",
		"data:a\rdata: b\r\r":                              "|a\nb",
		"data: a\r\n\r\n":                                  "|a",
		"\xef\xbb\xbfdata: a\n\n":                          "|a",
		": x\n\nevent: e\ndata:  a\n\n":                    "e| a",
		"event: gone\n\ndata: a\n\n":                       "|a",
		"data\n\n":                                         "|",
		"id: 1\n\ndata: a\n\n":                             "| |a",
		"data: a\n\ndata: unfinished\n":                    "|a",
		"other: x\nretry: x\ndata: a\n\n":                  "|a",
		":" + strings.Repeat("c", 10000) + "\ndata: a\n\n": "|a",
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			if got := read(newEvents(r, 1<<16)); got != want {
				t.Errorf("%.40q is %q, want %q", in, got, want)
			}
		}
	}
}

func read(e *events) string {
	var all []string
	for {
		ev, err := e.next()
		if err != nil {
			return strings.Join(all, " ")
		}
		all = append(all, ev.name+"|"+string(ev.data))
	}
}

// Property: an event stream says the same however it is cut into reads, and nothing
// that it says is longer than the bounds.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\nretry: 5\ndata: {}\r\rdata: b\n\n"))
	f.Add([]byte("\xef\xbb\xbf:c\r\n\r\nevent:e\ndata\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		const limit = 64
		whole := read(newEvents(bytes.NewReader(raw), limit))
		if cut := read(newEvents(iotest.OneByteReader(bytes.NewReader(raw)), limit)); cut != whole {
			t.Fatalf("%q whole, %q cut", whole, cut)
		}
		e := newEvents(bytes.NewReader(raw), limit)
		for {
			ev, err := e.next()
			if err != nil {
				return
			}
			if len(ev.data) > limit || len(ev.name) > maxField || len(e.id) > maxField || e.retry > maxRetry {
				t.Fatalf("%+v, %q, %v", ev, e.id, e.retry)
			}
		}
	})
}

// Property: what is in a header is one field value, and decodes to what was meant.
func FuzzEncode(f *testing.F) {
	f.Add("us-west1")
	f.Add(" padded ")
	f.Add("=?base64?aGk=?=")
	f.Add("Zürich\r\nHost: x")
	f.Fuzz(func(t *testing.T, s string) {
		got := encode(s)
		if strings.IndexFunc(got, func(r rune) bool { return r < 0x20 || r > 0x7e }) >= 0 || got != strings.TrimSpace(got) {
			t.Fatalf("%q is encoded as %q", s, got)
		}
		back := got
		if in, ok := strings.CutPrefix(got, encodedPrefix); ok {
			if in, ok = strings.CutSuffix(in, encodedSuffix); ok {
				raw, err := base64.StdEncoding.DecodeString(in)
				if err != nil {
					t.Fatal(err)
				}
				back = string(raw)
			}
		}
		if back != s {
			t.Fatalf("%q is decoded as %q", s, back)
		}
	})
}

// TestBindings: which arguments go into which headers, and which definitions cannot
// be followed.
func TestBindings(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}`:                                     "/r Region",
		`{"properties":{"a":{"type":"object","properties":{"b/c":{"type":"integer","x-mcp-header":"N"}}}}}`:  "/a/b~1c N",
		`{"properties":{"x-mcp-header":{"type":"string"}}}`:                                                  "",
		`{"properties":{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}}`:                              "",
		`{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}`:                                          "refused",
		`{"properties":{"r":{"type":"string","x-mcp-header":""}}}`:                                           "refused",
		`{"properties":{"r":{"type":"string","x-mcp-header":"a b"}}}`:                                        "refused",
		`{"properties":{"r":{"type":"string","x-mcp-header":"A\\r\\nHost"}}}`:                                "refused",
		`{"properties":{"r":{"type":"string","x-mcp-header":7}}}`:                                            "refused",
		`{"properties":{"a":{"type":"string","x-mcp-header":"X"},"b":{"type":"string","x-mcp-header":"x"}}}`: "refused",
	} {
		all, ok := bindingsOf([]byte(`{"name":"t","inputSchema":` + schema + `}`))
		got := "refused"
		if ok {
			got = ""
			for _, b := range all {
				got += b.pointer + " " + b.header
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", schema, got, want)
		}
	}
}

// TestLearn: tools that cannot be followed are left out, the bytes of others stay.
func TestLearn(t *testing.T) {
	bad := `{"name":"bad","inputSchema":{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}}`
	good := `{ "name":"good", "inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`
	_, w := io.Pipe()
	w.Close()
	c := &conn{bindings: map[string][]binding{}, notes: w}
	for in, want := range map[string]string{
		bad + " , " + good:             good,
		good + "," + bad + ", " + good: good + "," + good,
		bad:                            "",
		good + " , " + good:            good + " , " + good,
	} {
		if got := c.learn([]byte(`{"result":{"tools":[` + in + `]}}`)); string(got) != `{"result":{"tools":[`+want+`]}}` {
			t.Errorf("%s becomes %s", in, got)
		}
	}
	if len(c.bindings["good"]) != 1 {
		t.Errorf("bindings: %v", c.bindings)
	}
}

// Property: no definition makes headers that are not tokens, and what is repeated in
// them is in the arguments.
func FuzzBindings(f *testing.F) {
	f.Add([]byte(`{"inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}`))
	f.Fuzz(func(t *testing.T, def []byte) {
		all, ok := bindingsOf(def)
		if !ok {
			return
		}
		if strictjson.Check(def) != nil {
			t.Fatalf("accepts %q", def)
		}
		for _, b := range all {
			if !isToken(b.header) || !strings.HasPrefix(b.pointer, "/") {
				t.Fatalf("%+v", b)
			}
		}
	})
}

// TestVersionEscaped: D16: a request says of which revision it is by what its names decode to.
func TestVersionEscaped(t *testing.T) {
	line := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotoco\u006c\/protocolVersion":"2026-07-28"}}}`
	if m, err := readMessage([]byte(line), 1<<10); err != nil || m.version != "2026-07-28" || m.name != "a" {
		t.Errorf("%+v, %v", m, err)
	}
}
