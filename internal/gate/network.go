package gate

import (
	"strconv"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
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
// whose inside is decided by itself, and a number of requests that were denied before.
func (d *draft) unasked() *refusal {
	if d.req.Verb != act.VerbEffect {
		return nil
	}
	if _, counts := d.res.Facts["/repeated"]; counts {
		return &refusal{code: act.CodeNoAnswer, rules: d.judged.Rules, reason: d.judged.Reason + " Nobody is asked again about requests that were denied."}
	}
	if d.judged.Inside && d.res.Facts["/inside"] == true {
		d.judged.Verdict = act.Allow
		d.notes = append(d.notes, "each request inside is decided by itself")
	}
	return nil
}

// A traffic is what was carried for an allowed request, as whoever carried it says.
type traffic struct {
	Status   int    `json:"status,omitempty"` // of HTTP
	Sent     int64  `json:"sent"`             // bytes from the box
	Received int64  `json:"received"`         // bytes to it
	Millis   int64  `json:"ms"`
	Address  string `json:"address,omitempty"` // that was connected to
	Tunnel   bool   `json:"tunnel,omitempty"`  // nothing inside was read
}

// carried reads what o says of what was carried for t; nil if it says nothing of it.
func carried(t act.Ticket, o act.Outcome) *traffic {
	const most = 1 << 10
	if t.Verb != act.VerbEffect || len(o.Body) == 0 || len(o.Body) > most {
		return nil
	}
	var c traffic
	if err := strictjson.Unmarshal(o.Body, &c); err != nil {
		return nil
	}
	return &c
}
