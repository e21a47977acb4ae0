package mediator

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// A result that is larger than [Options.PageAbove] is kept in a file, and its client gets
// the beginning, and a link to a resource of ours with the rest. The file has no name, so
// nobody else opens it, and it goes with this process. Each page is decided like reading a
// resource of the server that the result came from.

// Bounds of kept results.
const (
	maxSpilled      = 64        // of all clients; the oldest goes
	maxSpilledBytes = 512 << 20 // of all clients
)

// spillPrefix begins the URIs of kept results.
const spillPrefix = "ringfence://results/"

// A spilled is a result that is kept for its client.
type spilled struct {
	id   string
	who  string
	s    *server
	file *os.File
	size int
}

// paged returns what the client reads of a result: itself, or its beginning. A result
// with structured content stays whole, as programs read that.
func (c *call) paged(body []byte) ([]byte, error) {
	limit := c.f.m.o.PageAbove
	if limit <= 0 || len(body) <= limit || !c.tool {
		return body, nil
	}
	if _, ok, err := strictjson.Find(body, "/structuredContent"); err != nil || ok {
		return body, nil //nolint:nilerr // what cannot be looked into stays whole
	}
	text := spillText(body)
	k, err := c.f.m.keepSpilled(c.f.who, c.s, text)
	if err != nil {
		return nil, fmt.Errorf("the result has %d bytes, which could not be kept: %w", len(body), err)
	}
	first := cutText(text, limit)
	more := fmt.Sprintf("(the first %d of %d bytes; the rest is in the resource %s)", len(first), k.size, k.uri(len(first)))
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(string(first))...)
	b = append(append(b, `},{"type":"text","text":`...), quote(more)...)
	b = append(append(b, `},{"type":"resource_link","name":"rest of the result","uri":`...), quote(k.uri(len(first)))...)
	b = append(b, `}]`...)
	if v, ok, err := strictjson.Find(body, "/isError"); err == nil && ok && v.Kind == strictjson.True {
		b = append(b, `,"isError":true`...)
	}
	return append(b, '}'), nil
}

// spillText is what of a result is paged: its text, if it is one block of it, else its JSON.
func spillText(body []byte) []byte {
	blocks, err := strictjson.ValuesLimits(body, strictjson.Limits{Size: len(body), Depth: resultDepth}, "/content/*")
	if err == nil && len(blocks) == 1 {
		kind, _, kerr := strictjson.Find(blocks[0].Raw, "/type")
		text, ok, terr := strictjson.Find(blocks[0].Raw, "/text")
		name, nerr := kind.Text()
		if s, err := text.Text(); errors.Join(err, kerr, terr, nerr) == nil && ok && name == "text" {
			return []byte(s)
		}
	}
	return body
}

// cutText returns at most limit bytes of text, no character cut in two.
func cutText(text []byte, limit int) []byte {
	if len(text) <= limit {
		return text
	}
	at := limit
	for at > limit-utf8.UTFMax && at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at]
}

func (k *spilled) uri(from int) string { return spillPrefix + k.id + "?from=" + strconv.Itoa(from) }

func (m *Mediator) keepSpilled(who string, s *server, text []byte) (*spilled, error) {
	if len(text) > maxSpilledBytes/4 {
		return nil, errors.New("it is too large to be kept")
	}
	f, err := os.CreateTemp("", "ringfence-result-")
	if err != nil {
		return nil, fmt.Errorf("keeping a result: %w", err)
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.Write(text)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keeping a result: %w", err), f.Close())
	}
	k := &spilled{id: rand.Text(), who: who, s: s, file: f, size: len(text)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spilled = append(m.spilled, k)
	total := 0
	for _, other := range m.spilled {
		total += other.size
	}
	for len(m.spilled) > maxSpilled || total > maxSpilledBytes {
		total -= m.spilled[0].size
		_ = m.spilled[0].file.Close() // it was written, and has no name
		m.spilled = m.spilled[1:]
	}
	return k, nil
}

// forgetSpilled ends all kept results.
func (m *Mediator) forgetSpilled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.spilled {
		_ = k.file.Close() // it was written, and has no name
	}
	m.spilled = nil
}

// spillPage returns the page at a URI of ours that f may read, the server that the result
// is of, and the URI of the page behind it, "" if there is none.
func (f *front) spillPage(uri string) (page []byte, s *server, next string, err error) {
	id, from, _ := strings.Cut(strings.TrimPrefix(uri, spillPrefix), "?from=")
	at, nerr := strconv.Atoi(from)
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, k := range f.m.spilled {
		if k.id != id || k.who != f.who || nerr != nil || at < 0 || at > k.size {
			continue
		}
		page = make([]byte, min(f.m.o.PageAbove+utf8.UTFMax, k.size-at))
		if _, err := k.file.ReadAt(page, int64(at)); err != nil {
			return nil, nil, "", fmt.Errorf("reading a kept result: %w", err)
		}
		page = cutText(page, f.m.o.PageAbove)
		if end := at + len(page); end < k.size {
			next = k.uri(end)
		}
		return page, k.s, next, nil
	}
	return nil, nil, "", fmt.Errorf("the resource %s: %w", clip(uri), errNothing)
}

// readPage answers resources/read of a URI of ours.
func (f *front) readPage(ctx context.Context, m message, uri string) parcel {
	page, s, next, err := f.spillPage(uri)
	if err != nil {
		return parcel{line: f.unknown(m, err)}
	}
	b := append([]byte(`{"contents":[{"mimeType":"text/plain","uri":`), quote(uri)...)
	b = append(append(append(b, `,"text":`...), quote(string(page))...), '}')
	if next != "" {
		b = append(append(b, `,{"mimeType":"text/plain","uri":`...), quote(next)...)
		b = append(append(append(b, `,"text":`...), quote("(go on with the resource "+next+")")...), '}')
	}
	c := &call{f: f, m: m, s: s, name: s.cfg.Name + ".resources/read", instead: append(b, "]}"...)}
	c.args = append(append([]byte(`{"uri":`), quote(uri)...), '}')
	c.seen = func(_ context.Context, _ act.Ticket, body []byte) ([]byte, error) { return bytes.Clone(body), nil }
	return parcel{line: c.answer(ctx)}
}
