package gate

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// TestEntriesAreCanonical: an entry is written as package json would write it, in the
// form in which the ledger keeps it; one that cannot be kept is refused either way.
func TestEntriesAreCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "plain", "a\"<&>\\\n", "é\u2028\x7f", "a\xffb", "a\x00"}))
		list := rapid.SliceOfN(text, 0, 2)
		fact := rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.SliceOfN(text, 1, 2), func(l []string) any { return l }),
			rapid.SampledFrom([]any{nil, 1.5}))
		effects := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act.Effect {
			return act.Effect{
				Kind: act.Kind(text.Draw(t, "kind")), Tree: rapid.Bool().Draw(t, "tree"), Implied: rapid.Bool().Draw(t, "implied"), Group: act.Group(text.Draw(t, "group")),
				Resource: act.Resource{Type: act.ResourceType(text.Draw(t, "type")), Text: text.Draw(t, "text"), Facts: rapid.MapOfN(text, fact, 0, 3).Draw(t, "facts")},
			}
		}), 1, 2).Draw(t, "effects")
		raw, err := appendEffects(nil, effects)
		if err != nil {
			t.Fatal(err)
		}
		same(t, raw, effects)
		labels := []act.Label{act.Label(text.Draw(t, "label"))}
		r := requestEntry{act.Verb(text.Draw(t, "verb")), text.Draw(t, "tool"), text.Draw(t, "pin"), text.Draw(t, "arguments"), rapid.IntRange(0, 1<<40).Draw(t, "size"), text.Draw(t, "digest"), nil, labels}
		if _, err := strictjson.Canonical(raw); err == nil {
			r.Effects = raw
		}
		same(t, r.canonical(), r)
		d := decisionEntry{
			act.Verdict(rapid.IntRange(0, 2).Draw(t, "verdict")), act.Code(r.Tool), list.Draw(t, "rules"), r.Arguments, list.Draw(t, "approved"), text.Draw(t, "granted"), list.Draw(t, "counted"),
			r.Pin, r.Tool, r.Digest, text.Draw(t, "box"), rapid.Bool().Draw(t, "durable"), labels[:rapid.IntRange(0, 1).Draw(t, "labels")],
		}
		same(t, d.canonical(), d)
		e := resultEntry{r.Tool, r.Size, r.Digest, r.Pin, d.Labels, rapid.IntRange(0, 2).Draw(t, "redacted"), nil, nil}
		if rapid.Bool().Draw(t, "spent") {
			e.Spent = &act.Spent{Tokens: int64(r.Size), MicroUSD: int64(r.Size)}
		}
		if rapid.Bool().Draw(t, "carried") {
			e.Carried = json.RawMessage(`{"ms":1}`)
		}
		same(t, e.canonical(), e)
	})
}

// same holds what was written against what package json writes.
func same(t *rapid.T, ours []byte, v any) {
	theirs, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want, werr := strictjson.Canonical(theirs)
	got, gerr := strictjson.Canonical(ours)
	if (werr == nil) != (gerr == nil) || string(got) != string(want) {
		t.Fatalf("%s\nis not\n%s\n%v, %v", ours, want, gerr, werr)
	}
}
