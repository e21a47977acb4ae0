package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act/weburl"
)

// between is a translation for clients of a wire.
func between(from Wire) Translation {
	t := Translation{From: from, To: Chat, Said: "asked", Model: "answers", Created: 1}
	if from == Chat {
		t.To = Messages
	}
	return t
}

// TestTranslateRequest: each line of a file named after a wire is a request of its clients.
func TestTranslateRequest(t *testing.T) {
	golden(t, "testdata/translate_request.txtar", func(files map[string]string, _ string) string {
		var b strings.Builder
		for _, w := range []Wire{Messages, Chat} {
			for line := range strings.Lines(files[string(w)]) {
				line = strings.TrimSpace(line)
				body, left, err := between(w).Request([]byte(line))
				if err != nil {
					fmt.Fprintf(&b, "%s\n  refused: %v\n", line, err)
					continue
				}
				fmt.Fprintf(&b, "%s\n  %s\n", line, body)
				if len(left) > 0 {
					fmt.Fprintf(&b, "  left out: %s\n", strings.Join(left, ", "))
				}
				// What is made is a request like any other of that form.
				if c, err := (Endpoint{Wire: between(w).To}).Clean(weburl.URL{}, body); err != nil || !bytes.Equal(c.Body, body) {
					t.Errorf("%s is not clean: %v %s", body, err, c.Body)
				}
			}
		}
		return b.String()
	})
}

// TestTranslateReply: each line of a file named after the wire of a client is an answer;
// one that begins with a number is an answer with that status.
func TestTranslateReply(t *testing.T) {
	golden(t, "testdata/translate_reply.txtar", func(files map[string]string, _ string) string {
		var b strings.Builder
		for _, w := range []Wire{Messages, Chat} {
			for line := range strings.Lines(files[string(w)]) {
				line = strings.TrimSpace(line)
				var status int
				if n, err := fmt.Sscanf(line, "%d ", &status); n == 1 && err == nil {
					_, body, _ := strings.Cut(line, " ")
					fmt.Fprintf(&b, "%s\n  %s\n", line, between(w).Failure(status, []byte(body)))
					continue
				}
				body, err := between(w).Reply([]byte(line))
				if err != nil {
					fmt.Fprintf(&b, "%s\n  error: %v\n", line, err)
					continue
				}
				fmt.Fprintf(&b, "%s\n  %s\n", line, body)
			}
		}
		return b.String()
	})
}

// streamed is what a client gets of a stream that is written in pieces as next cuts it.
func streamed(tr Translation, body []byte, next func(left int) int) (string, error) {
	var out bytes.Buffer
	s := tr.Stream(&out)
	for len(body) > 0 {
		n := next(len(body))
		if _, err := s.Write(body[:n]); err != nil {
			return out.String(), err
		}
		body = body[n:]
	}
	err := s.Close()
	return out.String(), err
}

func atOnce(left int) int { return left }

// TestTranslateStream: a file is a stream; its name is the wire of the client, and what it
// is about.
func TestTranslateStream(t *testing.T) {
	golden(t, "testdata/translate_stream.txtar", func(files map[string]string, order string) string {
		var b strings.Builder
		for name := range strings.Lines(order) {
			name = strings.TrimSpace(name)
			tr := between(Wire(strings.Fields(name)[0]))
			tr.Hide = strings.HasSuffix(name, "hidden usage")
			out, err := streamed(tr, []byte(files[name]), atOnce)
			fmt.Fprintf(&b, "%s:\n%s", name, out)
			if err != nil {
				fmt.Fprintf(&b, "error: %v\n", err)
			}
		}
		return b.String()
	})
}

// TestTranslateInPieces: however a stream is cut, the client gets the same.
func TestTranslateInPieces(t *testing.T) {
	a, err := txtar.ParseFile("testdata/translate_stream.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(a.Files).Draw(t, "file")
		if f.Name == "want" {
			return
		}
		tr := between(Wire(strings.Fields(f.Name)[0]))
		whole, err1 := streamed(tr, f.Data, atOnce)
		pieces, err2 := streamed(tr, f.Data, func(left int) int { return rapid.IntRange(1, left).Draw(t, "n") })
		if whole != pieces || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("whole: %v\n%s\nin pieces: %v\n%s", err1, whole, err2, pieces)
		}
	})
}

// TestTranslateCut: of a stream that stops before its end, nobody hears an end.
func TestTranslateCut(t *testing.T) {
	a, err := txtar.ParseFile("testdata/translate_stream.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		if !strings.HasSuffix(f.Name, "tools") {
			continue
		}
		tr := between(Wire(strings.Fields(f.Name)[0]))
		for n := range len(f.Data) {
			out, err := streamed(tr, f.Data[:n], atOnce)
			ended := strings.Contains(out, "message_stop") || strings.Contains(out, done)
			if ended != (err == nil) || !ended && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d bytes: %v\n%s", n, err, out)
			}
			if finish := bytes.Contains(f.Data[:n], []byte(`_reason":"tool`)); ended && !finish {
				t.Fatalf("%d bytes of the answer are taken for all of it", n)
			}
		}
	}
}

// said is what a request in Anthropic's form says, without what can be written in two ways.
func said(t *rapid.T, raw []byte) string {
	var m struct {
		System   json.RawMessage `json:"system"`
		Tools    json.RawMessage `json:"tools"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	var b strings.Builder
	check := func(err error) {
		if err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
	}
	var blocks func(who string, raw json.RawMessage)
	blocks = func(who string, raw json.RawMessage) {
		check(each(raw, func(s string) { fmt.Fprintf(&b, "%s %q\n", who, s) }, func(one json.RawMessage) error {
			var p anthropicBlock
			if err := json.Unmarshal(one, &p); err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s %s %q %s %s %s %s %s\n", who, strings.TrimPrefix(p.Type, "text"), p.Text, p.ID, p.Name, p.Input, p.Result, p.Source)
			blocks(who+" result", p.Content)
			return nil
		}))
	}
	check(json.Unmarshal(raw, &m))
	blocks("system", m.System)
	for _, one := range m.Messages {
		blocks(one.Role, one.Content)
	}
	fmt.Fprintf(&b, "%s\n", m.Tools)
	return b.String()
}

// TestThereAndBack: a request that is translated there and back says the same.
func TestThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.StringN(1, 20, 60).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }) // which no JSON of one meaning has
		text := func(name string) object { return object{"type": "text", "text": words.Draw(t, name)} }
		messages := []object{}
		for i := range rapid.IntRange(1, 4).Draw(t, "turns") {
			user := []object{}
			if i > 0 {
				user = append(user, object{"type": "tool_result", "tool_use_id": fmt.Sprint("t", i-1), "content": []object{text("result"), text("more")}})
			}
			for range rapid.IntRange(1, 3).Draw(t, "texts") {
				user = append(user, text("user"))
			}
			if rapid.Bool().Draw(t, "image") {
				user = append(user, object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "AAAA"}})
				user = append(user, object{"type": "document", "source": object{"type": "base64", "media_type": "application/pdf", "data": "AAAA"}})
			}
			input := object{"path": words.Draw(t, "input")}
			messages = append(messages, object{"role": "user", "content": user}, object{"role": "assistant", "content": []object{
				text("assistant"), text("assistant"),
				{"type": "tool_use", "id": fmt.Sprint("t", i), "name": "read", "input": input},
			}})
		}
		in, err := json.Marshal(object{
			"model": "m", "max_tokens": 10, "messages": messages, "system": []object{text("system"), text("system")},
			"tools": []object{{"name": "read", "description": words.Draw(t, "description"), "input_schema": object{"type": "object"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		there, left, err := between(Messages).Request(in)
		if err != nil || len(left) > 0 {
			t.Fatalf("%v %q", err, left)
		}
		back, left, err := between(Chat).Request(there)
		if err != nil || len(left) > 0 {
			t.Fatalf("%v %q of %s", err, left, there)
		}
		if a, b := said(t, in), said(t, back); a != b {
			t.Fatalf("%s\nbecame %s\nby way of %s", a, b, there)
		}
	})
}

// FuzzTranslateRequest: what comes out for either wire is a request that is as clean as one
// of a client.
func FuzzTranslateRequest(f *testing.F) {
	f.Add(true, []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}],"tools":[{"name":"t"}]}`))
	f.Add(false, []byte(`{"model":"m","messages":[{"role":"tool","tool_call_id":"t","content":"x"}],"stream":true}`))
	f.Fuzz(func(t *testing.T, anthropic bool, body []byte) {
		tr := between(map[bool]Wire{true: Messages, false: Chat}[anthropic])
		c, err := Endpoint{Wire: tr.From}.Clean(weburl.URL{}, body)
		if err != nil {
			return
		}
		out, _, err := tr.Request(c.Body)
		if err != nil {
			return
		}
		got, err := Endpoint{Wire: tr.To}.Clean(weburl.URL{}, out)
		if err == nil && (got.Model != "answers" || got.Streams != c.Streams) {
			t.Fatalf("%s became %s", body, out)
		}
	})
}

func fuzzStream(f *testing.F, from Wire) {
	a, err := txtar.ParseFile("testdata/translate_stream.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, one := range a.Files {
		if strings.HasPrefix(one.Name, string(from)) {
			f.Add(one.Data, uint(7))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint) {
		whole, err1 := streamed(between(from), body, atOnce)
		pieces, err2 := streamed(between(from), body, func(left int) int { return min(left, int(n%64)+1) })
		if whole != pieces || (err1 == nil) != (err2 == nil) {
			t.Fatalf("whole: %v\n%s\nin pieces: %v\n%s", err1, whole, err2, pieces)
		}
		for rest := []byte(whole); len(rest) > 0; {
			end := endOfEvent(rest)
			if data := dataOf(rest[:max(end, 0)]); end < 0 || string(data) != done && !json.Valid(data) {
				t.Fatalf("no event: %q", rest)
			}
			rest = rest[end:]
		}
	})
}

// FuzzStreamToMessages and FuzzStreamToChat: whatever a service sends, what comes out is
// whole events, and the same however it was cut.
func FuzzStreamToMessages(f *testing.F) { fuzzStream(f, Messages) }
func FuzzStreamToChat(f *testing.F)     { fuzzStream(f, Chat) }

// TestProfileModel: the name itself goes first, then the longest that fits.
func TestProfileModel(t *testing.T) {
	p := Profile{Models: map[string]string{"claude-*": "a", "claude-haiku-*": "b", "claude-x": "c", "*-mini": "d"}}
	for name, want := range map[string]string{"claude-1": "a", "claude-haiku-4": "b", "claude-x": "c", "gpt-mini": "d", "claude": "", "": ""} {
		if got, ok := p.Model(name); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", name, got, ok)
		}
	}
}

// TestSameForm: between equal forms only the model's name changes.
func TestSameForm(t *testing.T) {
	tr := Translation{From: Responses, To: Responses, Said: "asked", Model: "answers"}
	body, left, err := tr.Request([]byte(`{"input":[{"x":1}],"model":"asked"}`))
	if err != nil || len(left) > 0 || string(body) != `{"input":[{"x":1}],"model":"answers"}` {
		t.Errorf("%s %q %v", body, left, err)
	}
	if got, err := tr.Reply([]byte("{}")); err != nil || string(got) != "{}" {
		t.Errorf("%s %v", got, err)
	}
	tr.To = Messages
	if _, _, err := tr.Request([]byte(`{}`)); err == nil {
		t.Error("what is not translated is")
	}
	if _, err := tr.Stream(io.Discard).Write([]byte("data: {}\n\n")); err == nil {
		t.Error("a stream that is not translated is")
	}
}
