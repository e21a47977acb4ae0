// Package notice tells people outside of every terminal that something waits for them: by a
// program that they named, and by a request to an address that they named.
//
// It is not the desk: it decides nothing, and is told nothing of what is asked. It starts no
// program and opens no connection itself; it is given what does.
//
// Invariants:
//
//	N1  A notice holds the kind of what waits, how many wait, session and agent, and nothing
//	    that an agent wrote.
//	N2  However many questions come, at most one notice goes out in [Options.Every], and one
//	    is under way at a time.
//	N3  Nothing that happens to a notice holds up a question, or changes its answer.
package notice

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Notice is what people are told.
type Notice struct {
	Kind    string    `json:"kind"`    // of the first that came, such as "call", or an effect: "fetch"
	Waiting int       `json:"waiting"` // questions that have come since the last notice
	Session string    `json:"session"` // of the first
	Agent   string    `json:"agent"`   // "persona/agent" of the first
	At      time.Time `json:"at"`
}

// Text is a notice as a line for people.
func (n Notice) Text() string {
	if n.Waiting == 1 {
		return fmt.Sprintf("%s, session %s, asks for your approval (%s)", n.Agent, n.Session, n.Kind)
	}
	return fmt.Sprintf("%d questions wait for your approval, the first of %s, session %s (%s)", n.Waiting, n.Agent, n.Session, n.Kind)
}

// Options say how people are told. The zero value tells nobody.
type Options struct {
	// Run starts a program with the text of a notice as its last argument and waits until it
	// has ended, or ctx has; nil: none. It is a program and its arguments, never a shell's
	// line.
	Run func(ctx context.Context, text string) error
	// URL is where a notice is posted, "" for nowhere; Carrier carries it; Key signs it.
	URL     string
	Carrier http.RoundTripper
	Key     []byte
	Every   time.Duration // between notices, 0 for 10 seconds
	// Failed hears what went wrong, nil for nobody.
	Failed func(error)
	Now    func() time.Time // nil is time.Now
}

// Bounds.
const (
	usually   = 10 * time.Second // between notices
	oneTry    = 10 * time.Second // that a program or a request may take
	tries     = 3                // of a request
	maxQueued = 64               // questions that wait to be told of; more are counted only
)

// A Teller tells people. Make one with [New].
type Teller struct {
	o    Options
	news chan Notice
}

// New returns a teller, which tells while Run runs.
func New(o Options) *Teller {
	if o.Every <= 0 {
		o.Every = usually
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Teller{o, make(chan Notice, maxQueued)}
}

// Asked has people told of one question. It never waits.
func (t *Teller) Asked(kind, session, agent string) {
	n := Notice{Kind: word(kind), Waiting: 1, Session: word(session), Agent: word(agent), At: t.o.Now().UTC()}
	select {
	case t.news <- n:
	default: // people are about to hear that there are many
	}
}

var unusual = regexp.MustCompile(`[^A-Za-z0-9._/@-]`)

// word is a name as it may stand in a notice.
func word(name string) string {
	return unusual.ReplaceAllString(name[:min(len(name), 64)], "_")
}

// Run tells people until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	for {
		var n Notice
		select {
		case n = <-t.news:
		case <-ctx.Done():
			return
		}
		n = t.more(n)
		t.tell(ctx, n)
		rest := time.NewTimer(t.o.Every)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}

// more adds to n what else has come.
func (t *Teller) more(n Notice) Notice {
	for {
		select {
		case <-t.news:
			n.Waiting++
		default:
			return n
		}
	}
}

func (t *Teller) tell(ctx context.Context, n Notice) {
	var errs []error
	if t.o.Run != nil {
		one, cancel := context.WithTimeout(ctx, oneTry)
		if err := t.o.Run(one, n.Text()); err != nil {
			errs = append(errs, fmt.Errorf("telling people by approvals.notify: %w", err))
		}
		cancel()
	}
	if t.o.URL != "" {
		if err := t.post(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("telling people by approvals.webhook: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil && t.o.Failed != nil && ctx.Err() == nil {
		t.o.Failed(err)
	}
}

// The headers of a request: when it was sent, in seconds since 1970, and "sha256=" and the
// HMAC-SHA-256 in hexadecimal of that number, a full stop, and the body.
const (
	HeaderTime      = "Ringfence-Timestamp"
	HeaderSignature = "Ringfence-Signature"
)

// Sign is the signature of a body that was sent at that second.
func Sign(key []byte, at int64, body []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write(append(strconv.AppendInt(nil, at, 10), '.'))
	h.Write(body)
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// post sends n, and again if it did not arrive, for a while.
func (t *Teller) post(ctx context.Context, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var last error
	for i := range tries {
		if i > 0 {
			pause := time.NewTimer(time.Duration(i) * time.Second)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return ctx.Err()
			}
		}
		again, err := t.once(ctx, body)
		if err == nil {
			return nil
		}
		if last = err; !again {
			break
		}
	}
	return last
}

// once sends a body; again says that another try can help.
func (t *Teller) once(ctx context.Context, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.o.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	at := t.o.Now().Unix()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ringfence")
	r.Header.Set(HeaderTime, strconv.FormatInt(at, 10))
	r.Header.Set(HeaderSignature, Sign(t.o.Key, at, body))
	resp, err := t.o.Carrier.RoundTrip(r) // follows no redirect
	if err != nil {
		return true, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // what it says is of no interest
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode < 300:
		return false, nil
	case resp.StatusCode >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooManyRequests}, resp.StatusCode):
		again = true
	}
	return again, errors.New("it answers " + strings.ToLower(http.StatusText(resp.StatusCode)))
}
