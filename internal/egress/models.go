package egress

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/mitm"
	"ringfence/internal/egress/provider"
)

// reads reports whether what is said to host is always read and decided, request by
// request, whatever a policy says of the connection: a registry, or what runs models.
func (w *way) reads(host weburl.Host) bool {
	return w.o.Intercept != nil && (w.packages.Host(host) || w.o.Models.Host(host))
}

// An inference is one request to what runs models.
type inference struct {
	*exchange
	p     provider.Provider
	e     provider.Endpoint
	u     weburl.URL
	clean provider.Clean
	// turned is set where another provider answers, which p, e, u and clean are then of.
	turned *turned
	since  act.Spent // by answers that were over when it was decided about
}

var (
	errEndpoint = errors.New("this is not among what may be asked of the provider")
	errPacked   = errors.New("a request to a model must not be compressed: it is read")
	errKey      = errors.New("the request has a key of its own: a provider gets the key of the person who runs the session, and no other")
	errReply    = errors.New("the answer of the provider cannot be read, so it cannot be metered")
)

// infer decides about a request to a host that runs models, and carries it.
func (x *exchange) infer(w http.ResponseWriter, r *http.Request, u weburl.URL) {
	i := inference{exchange: x, u: u}
	var ok bool
	if i.p, ok = x.way.o.Models.Find(u); ok {
		i.e, ok = i.p.Endpoint(r.Method, u)
	}
	switch {
	case !ok || r.Header.Get("Upgrade") != "":
		i.no(w, r, http.StatusForbidden, errEndpoint)
		return
	case i.e.Quiet:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}") // who has gone does not read it
		return
	case i.profiled() && (i.e.Wire == "" || i.e.Counts):
		i.no(w, r, http.StatusNotFound, errOnlyModels)
		return
	}
	if r, ok = i.prepared(w, r); !ok {
		return
	}
	q, found := i.asks(r)
	if q.facts.Misplaced == "" && i.foreign(r, found) {
		i.no(w, r, http.StatusForbidden, errKey)
		return
	}
	i.since = x.way.tally.begin()
	t, no := x.ask(r.Context(), q)
	if no != nil {
		status := no.status()
		if slices.Contains(no.Rules, overBudget) {
			status = provider.OverBudget(i.wire())
		}
		i.say(w, status, no.Reason)
		return
	}
	e := ending{}
	defer func() { t.finish(e) }()
	if q.facts.Misplaced != "" {
		no = misplaced(t.Ticket, q.facts.Misplaced)
		e.err, e.Status = no, no.status()
		i.say(w, e.Status, no.Reason)
		return
	}
	i.carry(w, r, t, found, &e)
}

// prepared returns r as it is to go out, cleaned, and to another provider where a profile
// says so. ok is false if it was answered.
func (i *inference) prepared(w http.ResponseWriter, r *http.Request) (out *http.Request, ok bool) {
	if err := i.read(r); err != nil {
		i.no(w, r, http.StatusBadRequest, err)
		return nil, false
	}
	if !i.profiled() {
		return r, true
	}
	out, err := i.turn(r)
	switch {
	case errors.Is(err, errKey):
		i.no(w, r, http.StatusForbidden, err)
	case err != nil:
		i.no(w, r, http.StatusBadRequest, err)
	}
	return out, err == nil
}

// asks is what is decided about r, which is prepared.
func (i *inference) asks(r *http.Request) (question, []borrowed) {
	q, found := i.question(r, i.u)
	if t := i.turned; t != nil {
		q.facts.StandsFor = t.model
		if t.misplaced != "" {
			q.facts.Misplaced = t.misplaced
			q.effects = append(q.effects, act.Effect{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: t.misplaced}})
		}
	}
	q.effects = append(q.effects, act.Effect{Kind: act.Infer, Resource: act.Resource{Type: act.Model, Text: i.p.Model(i.clean.Model)}})
	q.facts.Model, q.facts.LeftOut = i.clean.Model, plain(strings.Join(i.clean.Left, ", "))
	return q, found
}

// no refuses what no policy can allow, on record.
func (i *inference) no(w http.ResponseWriter, r *http.Request, status int, why error) {
	q, _ := i.question(r, i.u)
	q.effects[0].Resource.Text = i.u.Plain().String()
	i.refuse(r.Context(), q.effects[0], q.facts, why.Error())
	i.say(w, status, why.Error())
}

// overBudget is the rule that a denial names when a budget is used up (package gate).
const overBudget = "budget"

// wire is the form in which the client is answered.
func (i *inference) wire() provider.Wire {
	if i.turned != nil {
		return i.turned.From
	}
	return i.e.Wire
}

// say answers in the form of the provider that was asked.
func (i *inference) say(w http.ResponseWriter, status int, why string) {
	body := provider.Refusal(i.wire(), status, why)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("X-Ringfence-Denied", "model")
	w.Header().Set("X-Should-Retry", "false") // clients of these services ask again otherwise
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not read it
}

// read takes the body of r, cleans it, and gives r what is left.
func (i *inference) read(r *http.Request) error {
	if i.e.Wire == "" {
		r.Body, r.ContentLength = http.NoBody, 0
		return nil
	}
	if r.Header.Get("Content-Encoding") != "" {
		return errPacked
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, provider.MaxRequest+1))
	if err != nil {
		return err
	}
	if i.clean, err = i.e.Clean(i.u, body); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(i.clean.Body)), int64(len(i.clean.Body))
	r.TransferEncoding, r.Trailer = nil, nil
	return nil
}

// foreign reports whether r has a key that is not one on loan. A service on a private
// address, which has none to give away, may be sent any.
func (i *inference) foreign(r *http.Request, found []borrowed) bool {
	if a, ok := i.u.Host.Addr(); ok && (a.IsLoopback() || a.IsPrivate()) {
		return false
	}
	for _, key := range i.p.Keys {
		if r.Header.Get(key) != "" && !slices.ContainsFunc(found, func(b borrowed) bool { return strings.EqualFold(b.at.Header, key) }) {
			return true
		}
	}
	if i.p.Query == "" {
		return false
	}
	return hasParameter(i.u.Query, i.p.Query) && !slices.ContainsFunc(found, func(b borrowed) bool { return b.at.Query == i.p.Query })
}

// hasParameter reports whether a query has a parameter of that name.
func hasParameter(query, name string) bool {
	for one := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		key, _, _ := strings.Cut(one, "=")
		if weburl.Unescape(key) == name {
			return true
		}
	}
	return false
}

// carry sends r and counts what the answer used.
func (i *inference) carry(w http.ResponseWriter, r *http.Request, t *ticket, found []borrowed, e *ending) {
	out, err := i.outgoing(r, t.Ticket, found, e)
	if err != nil {
		e.err, e.Status = err, http.StatusBadRequest
		i.say(w, e.Status, plain(err.Error()))
		return
	}
	out.Header.Set("Accept-Encoding", "identity") // it is metered as it comes
	out.Header.Del("Cookie")                      // another credential
	if i.e.Wire != "" {
		out.Header.Set("Content-Type", "application/json") // it was read as that, in UTF-8
	}
	base, err := i.way.forwarder(i.u.Host, t.Lend, e)
	if err != nil {
		e.err, e.Status = err, http.StatusBadGateway
		i.say(w, e.Status, plain(err.Error()))
		return
	}
	m := &metering{base: base.Transport, inference: i, budget: budgetOf(t.Ticket)}
	f := &mitm.Forwarder{Transport: m, Limits: base.Limits, Request: base.Request, Reply: base.Reply}
	got, err := f.Forward(w, out)
	e.Status, e.Sent, e.Received, e.err = got.Status, got.Sent, got.Received, cmp.Or(err, e.err)
	if m.meter == nil && m.unread && got.Sent > 0 {
		m.meter = m.of(io.Discard, false)
	}
	if m.meter == nil {
		return
	}
	u := m.meter.Usage()
	e.Usage = &u
	e.spent = m.spent()
	if _, ok := i.way.o.Prices.Cost(i.p.Model(i.clean.Model), u); ok {
		e.MicroUSD = e.spent.MicroUSD
	}
	i.way.tally.end(m, e.spent)
	if m.ended != nil {
		e.err = m.ended
	}
}

// A metering is a transport whose answers are metered while they pass.
type metering struct {
	base      http.RoundTripper
	inference *inference
	budget    provider.Budget
	meter     *provider.Meter // nil: nothing came that is metered
	unread    bool            // nothing came that can be metered, though it may have been made
	ended     error
}

// RoundTrip implements http.RoundTripper.
func (m *metering) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := m.base.RoundTrip(r)
	i := m.inference
	if i.e.Wire == "" || i.e.Counts {
		return res, err
	}
	if err != nil { // the service may have answered, to nobody
		m.unread = true
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return i.failed(res)
	}
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	streams := media == "text/event-stream"
	if encoding := res.Header.Get("Content-Encoding"); err != nil || encoding != "" && encoding != "identity" || !streams && media != "application/json" {
		_ = res.Body.Close()
		m.unread = true
		return nil, errReply
	}
	body := &metered{from: res.Body, of: m}
	m.meter = m.of(&body.ready, streams)
	i.way.tally.note(m, m.spent())
	res.Body = body
	if streams { // what is left out, or put at the end, changes it
		res.ContentLength = -1
		res.Header.Del("Content-Length")
	}
	return i.answered(res, streams)
}

// of is a meter of the answer, which passes on to w.
func (m *metering) of(w io.Writer, streams bool) *provider.Meter {
	i := m.inference
	return provider.NewMeter(w, provider.MeterOptions{
		Wire: i.e.Wire, Streams: streams, Hide: i.clean.HideLast, Sent: len(i.clean.Body), Most: i.clean.Most,
		Model: i.p.Model(i.clean.Model), Prices: i.way.o.Prices, Budget: m.budget,
		Others: func() (int64, int64) { return i.way.tally.others(m, i.since) },
	})
}

// spent is what the answer used so far. Money is counted where a budget has some, or a
// price is known.
func (m *metering) spent() act.Spent {
	u := m.meter.Usage()
	cost, ok := m.inference.way.o.Prices.Cost(m.inference.p.Model(m.inference.clean.Model), u)
	if !ok && m.budget.MicroUSD < 0 {
		cost = 0
	}
	return act.Spent{Tokens: u.Tokens(), MicroUSD: min(cost, math.MaxInt64/1024)}
}

// A metered is the body of an answer, as its meter lets it pass.
type metered struct {
	from  io.ReadCloser
	of    *metering
	ready bytes.Buffer
	piece [16 << 10]byte
	over  error
}

// Read implements io.Reader. An answer that its budget ended ends as the provider would
// end it.
func (c *metered) Read(p []byte) (int, error) {
	for c.ready.Len() == 0 {
		if c.over != nil {
			return 0, c.over
		}
		n, err := c.from.Read(c.piece[:])
		if n > 0 {
			_, werr := c.of.meter.Write(c.piece[:n])
			c.of.inference.way.tally.note(c.of, c.of.spent())
			if werr != nil {
				c.stop(werr)
				continue
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if cerr := c.of.meter.Close(); cerr != nil {
				c.stop(cerr)
				continue
			}
			c.over = io.EOF
		case err != nil:
			c.over = err
		}
	}
	return c.ready.Read(p)
}

// stop ends the answer before its end: nothing more is taken from upstream.
func (c *metered) stop(why error) {
	_ = c.from.Close()
	c.of.ended, c.over = why, why
	if errors.Is(why, provider.ErrBudget) {
		c.over = io.EOF
	}
}

// Close implements io.Closer.
func (c *metered) Close() error { return c.from.Close() }

// budget is what a request may use, by its ticket.
func budgetOf(t act.Ticket) provider.Budget {
	if t.Filter.Budget == nil {
		return provider.Unbounded
	}
	return provider.Budget{Tokens: t.Filter.Budget.Tokens, MicroUSD: t.Filter.Budget.MicroUSD}
}
