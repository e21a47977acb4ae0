package egress

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/provider"
)

// Facts are what a policy can know of a request besides its effects, by these names.
type facts struct {
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"`
	Query     string `json:"query,omitempty"`
	Via       via    `json:"via,omitempty"`
	PID       int    `json:"pid,omitempty"`       // in the numbers of the box, which proves nothing
	Inside    bool   `json:"inside,omitempty"`    // nothing is connected to before what is inside is decided
	Misplaced string `json:"misplaced,omitempty"` // the name of a secret whose sentinel is where it must not be
	Model     string `json:"model,omitempty"`     // as the provider names it
	StandsFor string `json:"for,omitempty"`       // the model in whose place it is asked, "anthropic/claude-x"
	LeftOut   string `json:"left_out,omitempty"`  // of a request to a model: what its provider would have done
	Refused   string `json:"refused,omitempty"`   // why it is refused, whatever is decided
	Message   string `json:"message,omitempty"`   // of a WebSocket: "text", "binary", or "found" where something was in one
	Direction string `json:"direction,omitempty"` // of it: "out" of the box, or "in"
	Quiet     bool   `json:"quiet,omitempty"`     // nobody is asked about it: see Options
	Repeated  int    `json:"repeated,omitempty"`  // equal requests that were denied since, without being decided
}

// A via says what a program of the box used.
type via string

const (
	viaHTTP    via = "http"    // a request to the proxy
	viaConnect via = "connect" // a tunnel through the proxy
	viaSOCKS   via = "socks"
	viaDirect  via = "direct" // a connection to a fake address
	viaDNS     via = "dns"
	viaOwn     via = "own" // a process of ours
)

// A question is what one decision is about.
type question struct {
	effects []act.Effect
	facts   facts
}

func hostEffect(k act.Kind, host weburl.Host, port uint16) act.Effect {
	return act.Effect{Kind: k, Resource: act.Resource{Type: act.Host, Text: host.WithPort(port)}}
}

// A DeniedError is the error of what was not allowed, and what a program is told of it.
type DeniedError struct {
	Object string   `json:"object"` // what it was about, as it was decided
	Effect act.Kind `json:"effect"`
	Code   act.Code `json:"code"`
	Rules  []string `json:"rules,omitempty"`
	Reason string   `json:"reason"`
	Ask    string   `json:"ask,omitempty"` // what can be done about it
}

// Error is the reason.
func (d *DeniedError) Error() string { return d.Reason }

// Body is d as programs read it.
func (d *DeniedError) Body() []byte {
	body, err := json.Marshal(map[string]*DeniedError{"denied": d})
	if err != nil { // text always encodes
		return []byte(`{"denied":{}}`)
	}
	return append(body, '\n')
}

// unsettled reports whether nothing was decided: it may come out otherwise the next time.
func (d *DeniedError) unsettled() bool {
	return d.Code == act.CodeInternal || d.Code == act.CodeEvidence || d.Code == act.CodeSession || d.Code == act.CodeChanged
}

// status is that of HTTP for d.
func (d *DeniedError) status() int {
	switch {
	case d.unsettled():
		return http.StatusServiceUnavailable
	case d.Code == act.CodeUnresolved, d.Code == act.CodeInvalid:
		return http.StatusBadRequest
	}
	return http.StatusForbidden
}

// answer writes d as a reply.
func (d *DeniedError) answer(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.Body())))
	h.Set(deniedHeader, string(d.Code))
	w.WriteHeader(d.status())
	_, _ = w.Write(d.Body()) // a client that has gone does not read it
}

const askPolicy = "nothing in the policy of this session allows it, or something forbids it: ask the person who runs the session to change the policy; trying again changes nothing"

var asks = map[act.Code]string{
	act.CodePolicy:     askPolicy,
	act.CodeTripwire:   "no policy can allow this",
	act.CodeRefused:    "a person said no: do not try again without telling why it is needed",
	act.CodeNoAnswer:   "nobody answered: it can be tried again when somebody is there (ringfence approvals)",
	act.CodeChanged:    "try again",
	act.CodeUnresolved: "write the name or URL in its plain form",
	act.CodeEvidence:   "what decides cannot record now: try again later",
	act.CodeInternal:   "what decides cannot be reached or failed: try again later",
}

// denialOf is t, which denies, as an error.
func denialOf(q question, t act.Ticket) *DeniedError {
	d := &DeniedError{Object: q.effects[0].Resource.Text, Effect: q.effects[0].Kind, Code: t.Code, Rules: t.Rules, Reason: t.Reason}
	if len(t.Effects) > 0 {
		d.Object, d.Effect = t.Effects[0].Resource.Text, t.Effects[0].Kind
	}
	if d.Code == "" {
		d.Code = act.CodeInternal
	}
	if d.Reason == "" {
		d.Reason = "denied: nobody could decide about it"
	}
	d.Ask = asks[d.Code]
	return d
}

// quiet reports whether r is at a host about which nobody is asked.
func (w *way) quiet(r act.Resource) bool {
	if len(w.o.Quiet) == 0 {
		return false
	}
	host, _, err := weburl.ParseHostPort(r.Text)
	if r.Type == act.URL {
		var u weburl.URL
		u, err = weburl.Parse(r.Text)
		host = u.Host
	}
	return err == nil && (r.Type == act.URL || r.Type == act.Host) && slices.Contains(w.o.Quiet, host.String())
}

// decide has q decided. Of two results one is nil.
func (w *way) decide(ctx context.Context, q question) (*ticket, *DeniedError) {
	q.facts.Quiet = w.quiet(q.effects[0].Resource)
	key := q.key()
	if d := w.floods.denied(key, w.now()); d != nil {
		return nil, d
	}
	args, err := json.Marshal(q.facts)
	if err != nil {
		return nil, denialOf(q, act.Ticket{Code: act.CodeInvalid, Reason: "denied: " + err.Error()})
	}
	t, err := w.o.Decider.Decide(ctx, act.Request{Verb: act.VerbEffect, Args: args, Direct: q.effects})
	if err != nil || t.Verdict != act.Allow {
		d := denialOf(q, t)
		if err == nil {
			w.floods.note(key, d, q, w.now())
		}
		return nil, d
	}
	return &ticket{Ticket: t, way: w, began: w.now()}, nil
}

// A ticket is one that allows, until it is finished.
type ticket struct {
	act.Ticket
	way   *way
	began time.Time
	once  sync.Once
	// inside says that nobody decided, as nothing is done: what is said in the connection
	// is decided, each request by itself.
	inside bool
}

// An ending is what the record says of how a connection or request ended.
type ending struct {
	Status   int             `json:"status,omitempty"` // of HTTP
	Sent     int64           `json:"sent"`             // bytes from the box
	Received int64           `json:"received"`         // and to it
	Millis   int64           `json:"ms"`
	Address  string          `json:"address,omitempty"` // that was connected to
	Tunnel   bool            `json:"tunnel,omitempty"`  // nothing inside was read
	Offered  int             `json:"offered,omitempty"` // versions of a package
	Withheld int             `json:"withheld,omitempty"`
	Usage    *provider.Usage `json:"usage,omitempty"`     // of a model
	MicroUSD int64           `json:"micro_usd,omitempty"` // that it cost, where a price is known

	err    error
	labels []act.Label
	spent  act.Spent
}

// finishWait bounds the record of one result.
const finishWait = 10 * time.Second

// finish hands in how it ended, once; further calls do nothing.
func (t *ticket) finish(e ending) {
	t.once.Do(func() {
		if t.inside {
			return
		}
		e.Millis = t.way.now().Sub(t.began).Milliseconds()
		o := act.Outcome{Labels: e.labels, Spent: e.spent}
		if e.err != nil {
			o.Error = e.err.Error()
		}
		body, err := json.Marshal(e)
		if err == nil {
			o.Body = body
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.way.ctx), finishWait)
		defer cancel()
		if _, err := t.way.o.Decider.Finish(ctx, t.Ticket, o); err != nil {
			t.way.unrecorded(err)
		}
	})
}
