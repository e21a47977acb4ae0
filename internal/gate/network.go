package gate

import (
	"encoding/json"
	"slices"
	"strconv"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/inspect"
)

// What leaves a box comes as effects without a tool. Its arguments are facts about a
// request, by the names that package egress gives them; policy reads them like the
// arguments of a call.

// maxDirectFact is the length of the longest text that is a fact, in bytes.
const maxDirectFact = 4 << 10

// directFacts takes the texts, numbers and booleans among the arguments of d for facts.
func (d *draft) directFacts() *refusal {
	if len(d.req.Args) == 0 {
		return nil
	}
	decoded, err := strictjson.Decode(d.req.Args)
	members, ok := decoded.(map[string]any)
	if err != nil || !ok {
		return refuse(act.CodeInvalid, "the arguments of a request without a tool are no JSON object: %v", err)
	}
	d.res.Facts = make(map[string]any, len(members))
	for name, v := range members {
		pointer := "/" + strictjson.Escape(name)
		switch v := v.(type) {
		case string:
			if len(v) <= maxDirectFact {
				d.res.Facts[pointer] = v
			}
		case bool:
			d.res.Facts[pointer] = v
		case strictjson.Number:
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				d.res.Facts[pointer] = n
			}
		}
	}
	return nil
}

// unasked settles what would be asked about, and need not or must not be: a connection
// whose inside is decided by itself, a message in a WebSocket, whose handshake was asked
// about, and a number of requests that were denied before.
func (d *draft) unasked() *refusal {
	if d.req.Verb != act.VerbEffect {
		return nil
	}
	if _, counts := d.res.Facts["/repeated"]; counts {
		return &refusal{code: act.CodeNoAnswer, rules: d.judged.Rules, reason: d.judged.Reason + " Nobody is asked again about requests that were denied."}
	}
	looksInside := d.judged.Inside && d.res.Facts["/inside"] == true
	if d.res.Facts["/quiet"] == true && d.judged.Verdict == act.Escalate && !looksInside {
		return &refusal{code: act.CodePolicy, rules: d.judged.Rules, reason: d.judged.Reason + " Nobody is asked about this host, as what is sent there is for the maker of the agent: a clause that allows it without asking does."}
	}
	if _, message := d.res.Facts["/message"]; message && d.judged.Verdict == act.Escalate {
		d.judged.Verdict = act.Allow
		d.notes = append(d.notes, "a message in what was asked about when it was opened")
	}
	if looksInside {
		d.judged.Verdict = act.Allow
		d.notes = append(d.notes, "each request inside is decided by itself")
	}
	return nil
}

// carriedNames are what whoever carried an allowed request can say of it: the status of
// HTTP, bytes from the box and to it, milliseconds, the address that was connected to,
// whether nothing inside was read, versions of a package, and what a model used and cost.
var carriedNames = map[string]bool{
	"status": true, "sent": true, "received": true, "ms": true, "address": true, "tunnel": true,
	"offered": true, "withheld": true, "usage": true, "micro_usd": true,
}

// maxCarried bounds what is said of one request, in bytes.
const maxCarried = 2 << 10

// carried is what o says of what was carried for t, as an entry has it; nil if it says
// nothing of it.
func (g *Gate) carried(t act.Ticket, o act.Outcome) json.RawMessage {
	if t.Verb != act.VerbEffect && t.Verb != act.VerbOffers || len(o.Body) == 0 || len(o.Body) > maxCarried {
		return nil
	}
	text, err := strictjson.Canonical(o.Body)
	if err != nil {
		return nil
	}
	members, err := strictjson.Members(text, strictjson.Limits{})
	if err != nil || slices.ContainsFunc(members, func(m strictjson.Member) bool { return !carriedNames[m.Name] }) {
		return nil
	}
	return g.o.Inspect.Redact(text, g.o.Inspect.ScanFrom(text, inspect.Result))
}
