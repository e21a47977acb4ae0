package mediator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act/strictjson"
)

// space draws white space, including none.
func space(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\t ", "\r"}).Draw(t, "space")
}

// text draws a JSON string in one of its many spellings.
func text(t *rapid.T, bad bool) string {
	parts := []string{"a", "é", "😀", `\u0041`, `\/`, `\\`, `\"`, `\n`, `\ud83d\ude00`, "  ", "{", "__", "\u2028"}
	if bad { // what only results may hold
		parts = append(parts, `\u0000`, `\ud800`)
	}
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 6).Draw(t, "text"), "") + `"`
}

// value draws JSON as odd as it may be and still be JSON.
func value(t *rapid.T, depth int, bad bool) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false", "-0", "1.50", "1E+2", "12345678901234567890", "0.1e-7"}).Draw(t, "scalar")
	case 1, 2:
		return text(t, bad)
	case 3:
		var b strings.Builder
		for i := range rapid.IntRange(0, 3).Draw(t, "n") {
			if i > 0 {
				b.WriteString("," + space(t))
			}
			b.WriteString(value(t, depth-1, bad) + space(t))
		}
		return "[" + space(t) + b.String() + "]"
	}
	return object(t, depth-1, bad)
}

func object(t *rapid.T, depth int, bad bool) string {
	var members []string
	for i := range rapid.IntRange(0, 3).Draw(t, "n") {
		key := fmt.Sprintf(`"k%d"`, i)
		if bad && rapid.Bool().Draw(t, "same key") {
			key = `"k"`
		}
		members = append(members, space(t)+key+space(t)+":"+space(t)+value(t, depth, bad)+space(t))
	}
	return "{" + strings.Join(members, ",") + space(t) + "}"
}

// TestR5 : of any call, the server receives every byte but those on the list of
// what is replaced, and of any result the client receives every byte.
func TestR5(t *testing.T) {
	lines, results := make(chan string, 1), make(chan string, 1)
	conv := converse(t, deciding(""), map[string][]fakeServer{"a": {func(p *fakeProcess) {
		p.open(aTool)
		for line := p.hear(); line != ""; line = p.hear() {
			lines <- line
			m, err := readClient([]byte(line))
			if err != nil {
				t.Errorf("the server heard %s: %v", line, err)
				return
			}
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id(), <-results))
		}
	}}, "b": {func(p *fakeProcess) { p.open(aTool); p.drain() }}}, nil)
	conv.open()
	next := 3 // the id that the server sees
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom([]string{"1", "-7.50", "1e3", `"x"`, `"\u00e9\/"`, "123456789012345678901234567890"}).Draw(t, "id")
		token := rapid.SampledFrom([]string{"", "5", `"t\u0041"`}).Draw(t, "token")
		args := object(t, 3, false)
		parts := []string{`"name":%s`, `"arguments" :` + strings.ReplaceAll(args, "%", "%%")}
		if token != "" {
			parts = append(parts, `"_meta": {"traceparent" :"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "progressToken":%s}`)
		}
		params := strings.Join(rapid.Permutation(parts).Draw(t, "params"), space(t)+","+space(t))
		envelope := rapid.Permutation([]string{`"jsonrpc":"2.0"`, `"id":ID`, `"method":"tools/call"`, `"params":{PARAMS}`}).Draw(t, "envelope")
		write := func(name, id, token string) string {
			p := params
			for range 2 { // in whichever order they come
				p = strings.Replace(p, `"name":%s`, `"name":`+name, 1)
				p = strings.Replace(p, `"progressToken":%s`, `"progressToken":`+token, 1)
			}
			line := "{" + strings.Join(envelope, ",") + "}"
			line = strings.Replace(line, `"id":ID`, `"id":`+id, 1)
			return strings.Replace(line, "PARAMS", strings.ReplaceAll(p, "%%", "%"), 1)
		}
		result := object(t, 3, true)
		results <- result
		sent := write(`"a__a"`, id, token)
		conv.send(sent)
		if got, want := <-lines, write(`"a"`, fmt.Sprint(next), fmt.Sprint(next)); got != want {
			t.Fatalf("client sent\n%s\nserver heard\n%s\nwant\n%s", sent, got, want)
		}
		next++
		if got, want := conv.receive(), `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`; got != want {
			t.Fatalf("client received\n%s\nwant\n%s", got, want)
		}
	})
}

// FuzzReadClient : what is read as a message is JSON that every reader reads so.
func FuzzReadClient(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":1},"_meta":{"progressToken":"t"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"x","result":{}}`))
	f.Add([]byte(`{"Jsonrpc":"2.0","id":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.ReplaceAll(line, []byte{'\n'}, nil)
		m, err := readClient(line)
		if err != nil {
			return
		}
		var std struct { // encoding/json ignores case and takes the last
			Method string
			ID     json.RawMessage
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &std); err != nil && m.method == "tools/call" && !strings.Contains(err.Error(), "cannot unmarshal") {
			t.Fatalf("%q: %v", line, err)
		}
		if m.method != "tools/call" {
			return
		}
		p, err := readCall(m)
		if err != nil || !m.request() {
			return
		}
		if std.Method != m.method || string(std.ID) != string(m.id()) || std.Params.Name != p.name || !bytes.Equal(std.Params.Arguments, p.arguments.of(line)) {
			t.Fatalf("%q is read as %+v and %+v", line, std, p)
		}
		out, err := p.toServer(m, 7, "tool", []byte(`{"other":1}`))
		if err != nil {
			t.Fatal(err)
		}
		back, err := readClient(bytes.TrimSuffix(out, []byte{'\n'}))
		if err != nil || bytes.Count(out, []byte{'\n'}) != 1 {
			t.Fatalf("%q becomes %q: %v", line, out, err)
		}
		if q, err := readCall(back); err != nil || q.name != "tool" || string(q.arguments.of(back.raw)) != `{"other":1}` {
			t.Fatalf("%q becomes %q: %v", line, out, err)
		}
	})
}

// FuzzReadServer : the splitter and the lenient reader hold their bounds.
func FuzzReadServer(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1,\"a\":\"\\u0000\"}}\r\n\nnoise\n[1]\nhalf"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		in := newLines(iotest{bytes.NewReader(stream)}, limit, true)
		for {
			line, err := in.next()
			if len(line) > limit+1 || bytes.IndexByte(line, '\n') >= 0 {
				t.Fatalf("line %q", line)
			}
			if m, rerr := readServer(line, limit); rerr == nil && (!json.Valid(line) || m.result.ok() && !json.Valid(m.result.of(line))) {
				t.Fatalf("accepts %q", line)
			}
			if err != nil && !errors.Is(err, errLong) {
				return
			}
		}
	})
}

// iotest reads a few bytes at a time.
type iotest struct{ r io.Reader }

func (i iotest) Read(p []byte) (int, error) { return i.r.Read(p[:min(len(p), 7)]) }

func TestWithNote(t *testing.T) {
	for in, want := range map[string]string{
		`{"content":[]}`: `{"content":[{"type":"text","text":"n"}]}`,
		`{"x":1,"content":[{"a":1}], "isError":1}`: `{"x":1,"content":[{"a":1},{"type":"text","text":"n"}], "isError":1}`,
		`{"x":1}`:        `{"x":1}`,
		`{"content":{}}`: `{"content":{}}`,
		`not json`:       `not json`,
	} {
		if got := string(withNote([]byte(in), "n")); got != want {
			t.Errorf("withNote(%s) = %s, want %s", in, got, want)
		}
	}
}

// BenchmarkCall compares a call straight to a server over pipes with one through
// the mediator; the difference is what the mediator adds.
func BenchmarkCall(b *testing.B) {
	serve := func(p *fakeProcess) {
		p.open(aTool)
		for line := p.hear(); line != ""; line = p.hear() {
			m, _ := readServer([]byte(line), strictjson.MaxSize)
			p.say(`{"jsonrpc":"2.0","id":` + string(m.id()) + `,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}}`)
		}
	}
	b.Run("direct", func(b *testing.B) {
		p := starting(nil).process(serve)
		defer p.Kill()
		out := newLines(p.Stdout, 1<<20, false)
		ask := func(line string) {
			_, _ = io.WriteString(p.Stdin.(*os.File), line+"\n")
			if _, err := out.next(); err != nil {
				b.Fatal(err)
			}
		}
		ask(`{}`)
		_, _ = io.WriteString(p.Stdin, "{}\n")
		ask(`{}`)
		for b.Loop() {
			ask(callLine("1", "a", `{"path":"/w/src/main.go","head":10}`))
		}
	})
	b.Run("mediated", func(b *testing.B) {
		conv := converse(b, deciding(""), map[string][]fakeServer{"fs": {serve}}, nil)
		conv.open()
		for b.Loop() {
			conv.ask(callLine("1", "a", `{"path":"/w/src/main.go","head":10}`))
		}
	})
	b.Run("denied", func(b *testing.B) {
		conv := converse(b, deciding("tools/call fs.a deny policy no"), map[string][]fakeServer{"fs": {serve}}, nil)
		conv.open()
		for b.Loop() {
			conv.ask(callLine("1", "a", `{"path":"/w/src/main.go","head":10}`))
		}
	})
}
