package api

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

func anyEffect() *rapid.Generator[act.Effect] {
	text := rapid.String()
	fact := rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.SliceOfN(text, 1, 3), func(l []string) any { return l }))
	return rapid.Custom(func(t *rapid.T) act.Effect {
		e := act.Effect{
			Kind: act.Kind(text.Draw(t, "kind")), Tree: rapid.Bool().Draw(t, "tree"), Implied: rapid.Bool().Draw(t, "implied"), Group: act.Group(text.Draw(t, "group")),
			Resource: act.Resource{Type: act.ResourceType(text.Draw(t, "type")), Text: text.Draw(t, "text")},
		}
		if facts := rapid.MapOfN(text, fact, 0, 3).Draw(t, "facts"); len(facts) > 0 {
			e.Resource.Facts = facts
		}
		return e
	})
}

func some[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// TestTicketOnWire: what is written by hand is what encoding/json writes, and
// every ticket comes back as it was.
func TestTicketOnWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		var left *act.Budget
		if rapid.Bool().Draw(t, "bounded") {
			left = &act.Budget{Tokens: rapid.Int64().Draw(t, "tokens"), MicroUSD: rapid.Int64().Draw(t, "money")}
		}
		want := act.Ticket{
			ID: text.Draw(t, "id"), Session: text.Draw(t, "session"), Verb: act.Verb(text.Draw(t, "verb")), Tool: text.Draw(t, "tool"),
			Verdict: act.Verdict(rapid.IntRange(0, 2).Draw(t, "verdict")), Code: act.Code(text.Draw(t, "code")),
			Rules: some(rapid.SliceOf(text).Draw(t, "rules")), Reason: text.Draw(t, "reason"),
			Effects: some(rapid.SliceOfN(anyEffect(), 0, 3).Draw(t, "effects")),
			Filter:  act.Filter{LeaveOut: some(rapid.SliceOf(text).Draw(t, "leave out")), Tunnel: rapid.Bool().Draw(t, "tunnel"), Budget: left},
		}
		raw, err := encodeTicket(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeTicket(raw)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v came back as %+v, %v", want, got, err)
		}
		lent := want
		for range rapid.IntRange(0, 2).Draw(t, "loans") {
			lent.Lend = append(lent.Lend, act.Loan{Name: text.Draw(t, "name"), Sentinel: text.Draw(t, "sentinel"), Value: text.Draw(t, "value")})
		}
		if raw, err = encodeTicket(lent); err != nil {
			t.Fatal(err)
		}
		if got, err := decodeTicket(raw); err != nil || !reflect.DeepEqual(got, lent) {
			t.Fatalf("%+v came back as %+v, %v", lent, got, err)
		}
		raw, err = encodeTicket(want)
		standard, serr := json.Marshal(lent)
		if err = errors.Join(err, serr); err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, raw, standard) {
			t.Fatalf("%s is not %s", raw, standard)
		}
		if got, err := decodeTicket(standard); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read as %+v, %v", standard, got, err)
		}
	})
}

func sameJSON(t *rapid.T, a, b []byte) bool {
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}

func TestRequestsOnWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		d := decideParams{
			Session: text.Draw(t, "session"), Verb: act.Verb(text.Draw(t, "verb")), Tool: text.Draw(t, "tool"),
			Direct: some(rapid.SliceOfN(anyEffect(), 0, 2).Draw(t, "direct")),
		}
		id := uint64(rapid.Int64Min(0).Draw(t, "id"))
		head, err := encodeDecide(id, d)
		if err != nil {
			t.Fatal(err)
		}
		h, err := parseHeader(head)
		if err != nil || h.ID != id || h.Method != methodDecide {
			t.Fatalf("%s: %+v, %v", head, h, err)
		}
		if got, err := decodeDecide(h.Params); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v came as %+v, %v", d, got, err)
		}
		f := finishParams{Session: d.Session, Ticket: d.Tool, Error: string(d.Verb), Spent: act.Spent{Tokens: 5}}
		for range rapid.IntRange(0, 2).Draw(t, "found") {
			f.Labels = append(f.Labels, act.Label(text.Draw(t, "label")))
		}
		if h, err = parseHeader(encodeFinish(id, f)); err != nil || h.Method != methodFinish {
			t.Fatalf("%+v, %v", h, err)
		}
		if got, err := decodeFinish(h.Params); err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("%+v came as %+v, %v", f, got, err)
		}
		r := act.Reply{Note: f.Error, Redacted: rapid.IntMin(0).Draw(t, "redacted")}
		for _, l := range rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "labels") {
			r.Labels = append(r.Labels, act.Label(l))
		}
		var std act.Reply
		raw := encodeReplyTo(r)
		if err := decode(raw, &std); err != nil || !reflect.DeepEqual(std, r) {
			t.Fatalf("%+v is %s, %v", r, raw, err)
		}
		if got, err := decodeReplyTo(raw); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v came as %+v, %v", r, got, err)
		}
	})
}

// FuzzHeader: a header is read as encoding/json reads it, or refused.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"decide","params":{"session":"s","direct":[{"kind":"read","resource":{"facts":{"a":["b"],"c":1,"d":true}}}]}}`))
	f.Add([]byte(`{"id":2,"result":{"id":"x","verdict":"allow","filter":{"leave_out":["a"]}},"more":true,"error":{"code":"x","message":"\ud83d\ude00"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := parseHeader(raw)
		if err != nil {
			return
		}
		var want header
		if json.Valid(raw) {
			if err := json.Unmarshal(raw, &want); err == nil && (want.ID != h.ID || want.Method != h.Method || want.More != h.More) {
				t.Errorf("%s is read as %+v, not %+v", raw, h, want)
			}
		}
		if p, err := decodeDecide(h.Params); err == nil && json.Valid(h.Params) {
			var want decideParams
			if json.Unmarshal(h.Params, &want) == nil && want.Session != p.Session {
				t.Errorf("%s is read as %+v, not %+v", h.Params, p, want)
			}
		}
		if p, err := decodeFinish(h.Params); err == nil && json.Valid(h.Params) {
			var want finishParams
			if json.Unmarshal(h.Params, &want) == nil && want.Ticket != p.Ticket {
				t.Errorf("%s is read as %+v, not %+v", h.Params, p, want)
			}
		}
		if ticket, err := decodeTicket(h.Result); err != nil && ticket.Verdict != act.Deny {
			t.Errorf("%s fails and allows", h.Result)
		}
	})
}
