package load

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A tally counts over all clients, and keeps the first of what must not be.
type tally struct {
	asked, answered, failed, cancelled, hostile atomic.Int64

	mu     sync.Mutex
	faults []string
	many   int
	why    map[string]int // of failures
}

func (y *tally) fault(format string, a ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.many++; len(y.faults) < 20 {
		y.faults = append(y.faults, fmt.Sprintf(format, a...))
	}
}

// A book has what one client asked, and checks all that the client hears: every line is
// about its own questions, and every question is answered once, with its own nonce.
type book struct {
	client int
	all    *tally

	mu   sync.Mutex
	last int
	open map[string]*question
	gone map[string]bool // that the client cancelled: one answer may still come
}

type question struct {
	nonce, server string
	done          chan struct{} // closed with the answer
}

// nonces are what clients put in their questions: who asks, and the how manieth.
var nonces = regexp.MustCompile(`n(\d+)x(\d+)n`)

func newBook(client int, all *tally) *book {
	return &book{client: client, all: all, open: map[string]*question{}, gone: map[string]bool{}}
}

// ask writes down a question to server and returns its id.
func (b *book) ask(server string) (id string, q *question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	id = fmt.Sprint(b.last)
	q = &question{fmt.Sprintf("n%dx%dn", b.client, b.last), server, make(chan struct{})}
	b.open[id] = q
	b.all.asked.Add(1)
	return id, q
}

// withdraw says that the client does not want the answer any more.
func (b *book) withdraw(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[id] != nil {
		delete(b.open, id)
		b.gone[id] = true
		b.all.cancelled.Add(1)
	}
}

// lost says that no answer can come any more.
func (b *book) lost(id, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.open[id]; q != nil {
		delete(b.open, id)
		b.all.fault("client %d: the question %s to %s has no answer: %s", b.client, id, q.server, why)
	}
}

// waits returns when there is an answer, or too late.
func (b *book) waits(id string, q *question, over <-chan struct{}) {
	select {
	case <-q.done:
	case <-over:
		b.lost(id, "the process has ended")
	case <-time.After(time.Minute):
		b.lost(id, "within a minute")
	}
}

// heard checks a line that came to the client.
func (b *book) heard(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Result *struct {
			IsError bool `json:"isError"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		b.all.fault("client %d: a line that is no message: %v: %.200s", b.client, err, line)
		return
	}
	own := fmt.Sprintf("n%dx", b.client)
	named := nonces.FindAllString(string(line), -1)
	for _, n := range named {
		if !strings.HasPrefix(n, own) {
			b.all.fault("client %d reads %s, which is another's: %.300s", b.client, n, line)
		}
	}
	if m.Method != "" {
		return
	}
	b.mu.Lock()
	q, gone := b.open[string(m.ID)], b.gone[string(m.ID)]
	delete(b.open, string(m.ID))
	delete(b.gone, string(m.ID))
	b.mu.Unlock()
	if q == nil {
		if !gone {
			b.all.fault("client %d: an answer that nothing waits for: %.200s", b.client, line)
		}
		return
	}
	good := m.Result != nil && !m.Result.IsError
	for _, n := range named {
		if n != q.nonce {
			b.all.fault("client %d: %s is answered with %s", b.client, q.nonce, n)
		}
	}
	switch {
	case good && (len(named) == 0 || strings.Contains(string(line), "Forged")):
		b.all.fault("client %d: the answer to %s is %.200s", b.client, q.nonce, line)
	case good:
		b.all.answered.Add(1)
	default:
		b.all.failing(q.server, line)
	}
	close(q.done)
}

var digits = regexp.MustCompile(`[0-9a-f]*\d[0-9a-f]*`)

// failing counts an answer that is an error, by server and kind.
func (y *tally) failing(server string, line []byte) {
	y.failed.Add(1)
	_, why, _ := strings.Cut(string(line), `"text":"`)
	if why == "" {
		_, why, _ = strings.Cut(string(line), `"message":"`)
	}
	why = server + ": " + digits.ReplaceAllString(why[:min(len(why), 90)], "#")
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.why == nil {
		y.why = map[string]int{}
	}
	if y.why[why] > 0 || len(y.why) < 60 {
		y.why[why]++
	}
}
