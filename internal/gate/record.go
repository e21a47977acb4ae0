package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"ringfence/internal/act"
	"ringfence/internal/act/waits"
	"ringfence/internal/inspect"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
)

// The types of entry that the gate writes. docs/ledger-entries.md says what they hold.
const (
	EntryRequest  = "request"
	EntryQuestion = "question"
	EntryAnswer   = "answer"
	EntryDecision = "decision"
	EntryResult   = "result"
)

// maxRecorded is how many bytes of arguments an entry holds in full; of longer
// ones only size and digest are kept.
const maxRecorded = 8 << 10

type requestEntry struct {
	Verb      act.Verb        `json:"verb"`
	Tool      string          `json:"tool,omitempty"`
	Pin       string          `json:"pin,omitempty"`
	Arguments string          `json:"arguments,omitempty"` // as given, secrets redacted
	Size      int             `json:"size"`
	Digest    string          `json:"digest"`            // SHA-256 of the arguments as given
	Effects   json.RawMessage `json:"effects,omitempty"` // []act.Effect, secrets redacted
	Labels    []act.Label     `json:"labels,omitempty"`
}

type questionEntry struct {
	Clauses []askedEntry `json:"clauses"`
	Digest  string       `json:"digest"` // what an approval is bound to
}

type askedEntry struct {
	Clause string `json:"clause"`
	Text   string `json:"text"`
	Count  int    `json:"count"`          // how many people
	Role   string `json:"role,omitempty"` // of which role
}

type answerEntry struct {
	Question string   `json:"question,omitempty"`
	Approved bool     `json:"approved"`
	Code     act.Code `json:"code,omitempty"`
	By       []string `json:"by,omitempty"`
	Note     string   `json:"note,omitempty"`
	Message  string   `json:"message,omitempty"`
	Scope    string   `json:"scope,omitempty"` // of a yes for the session
}

type decisionEntry struct {
	Verdict  act.Verdict `json:"verdict"`
	Code     act.Code    `json:"code,omitempty"`
	Rules    []string    `json:"rules,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	Approved []string    `json:"approved,omitempty"` // clauses a person approved
	Granted  string      `json:"granted,omitempty"`  // the question whose yes for the session spared the asking
	Counted  []string    `json:"counted,omitempty"`  // limited clauses this counts against
	Dispatch string      `json:"dispatch,omitempty"` // SHA-256 of what is dispatched
	Changed  string      `json:"changed,omitempty"`  // what is dispatched, where it differs from what was given
	Policy   string      `json:"policy"`
	Box      string      `json:"box"`              // what confines the effect
	Durable  bool        `json:"durable"`          // it is on disk before the effect
	Labels   []act.Label `json:"labels,omitempty"` // new in this session, by the decision alone
}

type resultEntry struct {
	Ticket   string      `json:"ticket"`
	Size     int         `json:"size"`
	Digest   string      `json:"digest,omitempty"` // SHA-256 of the result as received
	Error    string      `json:"error,omitempty"`
	Labels   []act.Label `json:"labels,omitempty"` // new in this session
	Redacted int         `json:"redacted,omitempty"`
	Spent    *act.Spent  `json:"spent,omitempty"` // of models
	// Carried is what passed, of an effect without a tool.
	Carried json.RawMessage `json:"carried,omitempty"`
}

// record writes the decision, and the request if it was not written when a
// person was asked. It returns the ticket's id, and if durable when all of that is on disk,
// but for a program: its box is put on record, on disk, before it starts, and what was
// written before is then on disk with it. So there is one wait for the disk, not two. What
// a person answered is waited for always.
func (g *Gate) record(ctx context.Context, d *draft, t act.Ticket, durable bool) (string, error) {
	now := durable && d.req.Verb != act.VerbExec
	var entries []ledger.Entry
	if !d.asked {
		entries = append(entries, entry(d, EntryRequest, g.requestEntry(d)))
	}
	if a := d.answer; a != nil {
		answer := answerEntry{Question: a.ID, Approved: a.Approved, Code: a.Code, By: a.By, Note: a.Note, Message: g.clean(a.Message)}
		if s := d.chosen(); s != nil {
			answer.Scope = g.clean(s.Text)
		}
		entries = append(entries, entry(d, EntryAnswer, answer))
		durable, now = true, true
	}
	de := decisionEntry{
		Verdict: t.Verdict, Code: t.Code, Rules: t.Rules, Reason: g.clean(t.Reason), Policy: d.run.Policy.Hash(),
		Box: d.box(), Durable: durable,
	}
	if t.Verdict == act.Allow {
		de.Labels, de.Granted = d.sets(), d.lasted
		de.Approved, de.Counted, de.Dispatch = d.approved, d.judged.Limited, digest(t.Bytes)
		if string(t.Bytes) != string(d.req.Args) {
			de.Changed = g.readable(t.Bytes)
		}
	}
	entries = append(entries, entry(d, EntryDecision, de))
	refs, err := g.append(ctx, now, entries...)
	if err != nil {
		return "", fmt.Errorf("recording decision: %w", err)
	}
	return TicketID(refs[len(refs)-1]), nil
}

// box is what confines the effect: the box of the server that carries it out,
// where that was reported, else that of the session.
func (d *draft) box() string {
	server, _, _ := d.run.listed(d.req.Tool) // of VerbList
	if d.tool != nil {
		server = d.tool.server
	}
	if server != nil {
		if box := server.confinedBy(); box != "" {
			return box
		}
	}
	return d.run.Box
}

// TicketID is the id of the ticket whose decision is the entry at r.
func TicketID(r ledger.Ref) string { return r.Session + "/" + strconv.FormatInt(r.Seq, 10) }

// recordQuestion writes, on disk, that a person is about to be asked.
func (g *Gate) recordQuestion(ctx context.Context, d *draft) error {
	sum := d.digest(g)
	q := questionEntry{Digest: hex.EncodeToString(sum[:])}
	for _, a := range d.judged.Ask {
		q.Clauses = append(q.Clauses, askedEntry{Clause: a.Clause, Text: a.Text, Count: a.Quorum.Count, Role: a.Quorum.Role})
	}
	_, err := g.append(ctx, true,
		entry(d, EntryRequest, g.requestEntry(d)),
		entry(d, EntryQuestion, q))
	d.asked = err == nil
	return err
}

func (g *Gate) requestEntry(d *draft) requestEntry {
	e := requestEntry{
		Verb: d.req.Verb, Tool: g.clean(d.req.Tool), Arguments: g.arguments(d), Size: len(d.req.Args),
		Digest: digest(d.req.Args), Effects: g.cleanEffects(d.res.Effects), Labels: d.labels,
	}
	if d.tool != nil {
		e.Pin = d.tool.Pin
	}
	return e
}

// append writes entries whether or not somebody still waits for them: what a
// person answered or a call led to is on record also when the client has gone.
func (g *Gate) append(ctx context.Context, durable bool, entries ...ledger.Entry) ([]ledger.Ref, error) {
	if durable {
		waits.Tell(ctx)
	}
	return g.o.Ledger.Append(context.WithoutCancel(ctx), durable, entries...)
}

// clean is text without secrets. What a call would do and why it is refused can
// repeat its arguments, and name what they stand for: the URL of a remote.
func (g *Gate) clean(text string) string {
	return string(g.o.Inspect.Redact([]byte(text), g.o.Inspect.ScanFrom([]byte(text), inspect.Arguments)))
}

// unwritable stands for effects that no entry can hold. It is no JSON, so the ledger
// refuses the entry, and the request is denied.
const unwritable = "?"

// cleanEffects encodes effects without secrets; as a text if there are too many.
func (g *Gate) cleanEffects(effects []act.Effect) json.RawMessage {
	if len(effects) == 0 {
		return nil
	}
	raw, err := appendEffects(make([]byte, 0, roomForEntry), effects)
	if err != nil {
		return json.RawMessage(unwritable)
	}
	return g.o.Inspect.Redact(raw, g.o.Inspect.ScanFrom(raw, inspect.Arguments))
}

// arguments is what an entry holds of the arguments of d. They were scanned, unless d
// was denied before.
func (g *Gate) arguments(d *draft) string {
	if d.found == nil || len(d.req.Args) > maxRecorded || !utf8.Valid(d.req.Args) {
		return g.readable(d.req.Args)
	}
	return string(g.o.Inspect.Redact(d.req.Args, *d.found))
}

// readable is content as an entry may hold it: short, valid text, no secrets.
func (g *Gate) readable(content []byte) string {
	if len(content) > maxRecorded || !utf8.Valid(content) {
		return ""
	}
	return string(g.o.Inspect.Redact(content, g.o.Inspect.ScanFrom(content, inspect.Arguments)))
}

// entry encodes body. The types above always encode: they hold text, numbers,
// and the facts of resources, which are text, numbers and booleans.
func entry(d *draft, kind string, body any) ledger.Entry {
	if c, ok := body.(interface{ canonical() []byte }); ok {
		return ledger.Entry{Session: d.req.Session, Type: kind, Body: c.canonical()}
	}
	data, _ := json.Marshal(body) // none on error: refused by the ledger, so the request is denied
	return ledger.Entry{Session: d.req.Session, Type: kind, Body: data}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func clauses(asked []policy.Asked) []string {
	ids := make([]string, len(asked))
	for i, a := range asked {
		ids[i] = a.Clause
	}
	return ids
}
