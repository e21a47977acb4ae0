package api

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"ringfence/internal/act"
)

// parseHeader reads a header. Unknown members are refused.
func parseHeader(head []byte) (h header, err error) {
	c := &cursor{b: head}
	err = c.only(func(name string) (err error) {
		switch name {
		case "id":
			var n int64
			if n, err = c.number(); n < 0 {
				err = fmt.Errorf("%w: negative id", errHeader)
			}
			h.ID = uint64(n)
		case "method":
			h.Method, err = c.str()
		case "params":
			h.Params, err = c.raw()
		case "result":
			h.Result, err = c.raw()
		case "more":
			h.More, err = c.boolean()
		case "error":
			var raw []byte
			if raw, err = c.raw(); err == nil {
				err = decode(raw, &h.Error)
			}
		default:
			err = fmt.Errorf("%w: unknown member %q", errHeader, name)
		}
		return err
	})
	return h, err
}

func appendID(b []byte, id uint64) []byte {
	return strconv.AppendUint(append(b, `{"id":`...), id, 10)
}

func encodeDecide(id uint64, p decideParams) ([]byte, error) {
	if err := representable(p.Direct); err != nil {
		return nil, err
	}
	b := appendID(make([]byte, 0, 256), id)
	b = append(b, `,"method":"decide","params":{`...)
	b = appendField(b, "session", p.Session)
	b = appendField(b, "verb", string(p.Verb))
	b = appendField(b, "tool", p.Tool)
	b = appendEffects(b, "direct", p.Direct)
	return append(closeList(b, '}'), '}'), nil
}

// only reads an object, and nothing after it.
func (c *cursor) only(member func(name string) error) error {
	if err := c.object(member); err != nil {
		return err
	}
	return c.end()
}

// representable refuses resources whose text JSON cannot carry: what one side
// decides would not be what the other does.
func representable(effects []act.Effect) error {
	for _, e := range effects {
		if !utf8.ValidString(e.Resource.Text) {
			return Errorf(CodeBadRequest, "the %s %q is not valid UTF-8", e.Resource.Type, e.Resource.Text)
		}
	}
	return nil
}

func decodeDecide(raw []byte) (p decideParams, err error) {
	c := &cursor{b: raw}
	err = c.only(func(name string) (err error) {
		switch name {
		case "session":
			p.Session, err = c.str()
		case "verb":
			var s string
			s, err = c.str()
			p.Verb = act.Verb(s)
		case "tool":
			p.Tool, err = c.str()
		case "direct":
			p.Direct, err = c.effects()
		default:
			err = fmt.Errorf("%w: unknown member %q", errHeader, name)
		}
		return err
	})
	return p, err
}

func encodeFinish(id uint64, p finishParams) []byte {
	b := appendID(make([]byte, 0, 128), id)
	b = append(b, `,"method":"finish","params":{`...)
	b = appendField(b, "session", p.Session)
	b = appendField(b, "ticket", p.Ticket)
	b = appendField(b, "error", p.Error)
	b = appendLabels(b, p.Labels)
	if p.Spent != (act.Spent{}) {
		b = append(appendBudget(append(b, `"spent":`...), p.Spent.Tokens, p.Spent.MicroUSD), ',')
	}
	return append(closeList(b, '}'), '}')
}

// appendBudget appends `{"tokens":…,"micro_usd":…}`.
func appendBudget(b []byte, tokens, microUSD int64) []byte {
	b = strconv.AppendInt(append(b, `{"tokens":`...), tokens, 10)
	return append(strconv.AppendInt(append(b, `,"micro_usd":`...), microUSD, 10), '}')
}

func (c *cursor) budget() (tokens, microUSD int64, err error) {
	err = c.object(func(name string) (err error) {
		switch name {
		case "tokens":
			tokens, err = c.number()
		case "micro_usd":
			microUSD, err = c.number()
		default:
			err = fmt.Errorf("%w: unknown member %q", errHeader, name)
		}
		return err
	})
	return tokens, microUSD, err
}

// appendLabels appends `"labels":[…],`, or nothing where there are none.
func appendLabels(b []byte, labels []act.Label) []byte {
	if len(labels) == 0 {
		return b
	}
	b = append(b, `"labels":[`...)
	for _, l := range labels {
		b = append(appendString(b, string(l)), ',')
	}
	return append(closeList(b, ']'), ',')
}

func (c *cursor) labels() (list []act.Label, err error) {
	names, err := c.strs()
	for _, l := range names {
		list = append(list, act.Label(l))
	}
	return list, err
}

func decodeFinish(raw []byte) (p finishParams, err error) {
	c := &cursor{b: raw}
	err = c.only(func(name string) (err error) {
		switch name {
		case "session":
			p.Session, err = c.str()
		case "ticket":
			p.Ticket, err = c.str()
		case "error":
			p.Error, err = c.str()
		case "labels":
			p.Labels, err = c.labels()
		case "spent":
			p.Spent.Tokens, p.Spent.MicroUSD, err = c.budget()
		default:
			err = fmt.Errorf("%w: unknown member %q", errHeader, name)
		}
		return err
	})
	return p, err
}

// encodeReplyTo writes the reply to a finish as its JSON form, which leaves out Body.
func encodeReplyTo(r act.Reply) []byte {
	if len(r.Labels) == 0 && r.Redacted == 0 && r.Note == "" {
		return []byte("{}")
	}
	b := appendLabels(append(make([]byte, 0, 128), '{'), r.Labels)
	if r.Redacted != 0 {
		b = append(strconv.AppendInt(append(b, `"redacted":`...), int64(r.Redacted), 10), ',')
	}
	b = appendField(b, "note", r.Note)
	return closeList(b, '}')
}

// decodeReplyTo reads the reply to a finish, all but its Body.
func decodeReplyTo(raw []byte) (act.Reply, error) {
	var r act.Reply
	c := &cursor{b: raw}
	err := c.only(func(name string) (err error) {
		switch name {
		case "labels":
			r.Labels, err = c.labels()
		case "redacted":
			var n int64
			n, err = c.number()
			r.Redacted = int(n)
		case "note":
			r.Note, err = c.str()
		default:
			err = fmt.Errorf("%w: unknown member %q", errHeader, name)
		}
		return err
	})
	if err != nil {
		return act.Reply{}, err
	}
	return r, nil
}

// encodeTicket writes t as its JSON form, which leaves out Bytes.
func encodeTicket(t act.Ticket) ([]byte, error) {
	if err := representable(t.Effects); err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, 512), '{')
	b = append(appendString(append(b, `"id":`...), t.ID), ',')
	b = append(appendString(append(b, `"session":`...), t.Session), ',')
	b = append(appendString(append(b, `"verb":`...), string(t.Verb)), ',')
	b = appendField(b, "tool", t.Tool)
	b = appendField(b, "verdict", t.Verdict.String())
	b = appendField(b, "code", string(t.Code))
	b = appendStrings(b, "rules", t.Rules)
	b = appendField(b, "reason", t.Reason)
	b = appendEffects(b, "effects", t.Effects)
	if len(t.Filter.LeaveOut) > 0 || t.Filter.Tunnel || t.Filter.Budget != nil {
		b = appendStrings(append(b, `"filter":{`...), "leave_out", t.Filter.LeaveOut)
		if t.Filter.Tunnel {
			b = append(b, `"tunnel":true,`...)
		}
		if left := t.Filter.Budget; left != nil {
			b = append(appendBudget(append(b, `"budget":`...), left.Tokens, left.MicroUSD), ',')
		}
		b = append(closeList(b, '}'), ',')
	}
	b, err := appendLoans(b, t.Lend)
	return closeList(b, '}'), err
}

// decodeTicket reads a ticket, all but its Bytes. What it does not understand is
// an error, and with it the ticket denies.
func decodeTicket(raw []byte) (act.Ticket, error) {
	var t act.Ticket
	c := &cursor{b: raw}
	err := c.only(func(name string) error { return c.ticketField(&t, name) })
	if err != nil {
		return act.Ticket{}, err
	}
	return t, nil
}

func (c *cursor) ticketField(t *act.Ticket, name string) (err error) {
	var s string
	switch name {
	case "id":
		t.ID, err = c.str()
	case "session":
		t.Session, err = c.str()
	case "verb":
		s, err = c.str()
		t.Verb = act.Verb(s)
	case "tool":
		t.Tool, err = c.str()
	case "verdict":
		if s, err = c.str(); err == nil {
			err = t.Verdict.UnmarshalText([]byte(s))
		}
	case "code":
		s, err = c.str()
		t.Code = act.Code(s)
	case "rules":
		t.Rules, err = c.strs()
	case "reason":
		t.Reason, err = c.str()
	case "effects":
		t.Effects, err = c.effects()
	case "filter":
		err = c.object(func(name string) (err error) {
			switch name {
			case "leave_out":
				t.Filter.LeaveOut, err = c.strs()
			case "tunnel":
				t.Filter.Tunnel, err = c.boolean()
			case "budget":
				t.Filter.Budget = &act.Budget{}
				t.Filter.Budget.Tokens, t.Filter.Budget.MicroUSD, err = c.budget()
			default:
				err = fmt.Errorf("%w: unknown filter %q", errHeader, name)
			}
			return err
		})
	case "lend":
		t.Lend, err = c.loans()
	default:
		err = fmt.Errorf("%w: unknown member %q", errHeader, name)
	}
	return err
}

func appendStrings(b []byte, name string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(append(append(b, '"'), name...), `":`...)
	return append(appendList(b, list), ',')
}

func appendList(b []byte, list []string) []byte {
	b = append(b, '[')
	for _, s := range list {
		b = append(appendString(b, s), ',')
	}
	return closeList(b, ']')
}

func appendEffects(b []byte, name string, effects []act.Effect) []byte {
	if len(effects) == 0 {
		return b
	}
	b = append(append(append(b, '"'), name...), `":[`...)
	for _, e := range effects {
		b = append(appendString(append(b, `{"kind":`...), string(e.Kind)), ',')
		b = appendString(append(b, `"resource":{"type":`...), string(e.Resource.Type))
		b = append(appendString(append(b, `,"text":`...), e.Resource.Text), ',')
		b = append(closeList(appendFacts(b, e.Resource.Facts), '}'), ',')
		if e.Tree {
			b = append(b, `"tree":true,`...)
		}
		if e.Implied {
			b = append(b, `"implied":true,`...)
		}
		b = appendField(b, "group", string(e.Group))
		b = append(closeList(b, '}'), ',')
	}
	return append(closeList(b, ']'), ',')
}

// appendFacts leaves out facts of a type that no fact has: a policy denies where
// one is missing.
func appendFacts(b []byte, facts map[string]any) []byte {
	if len(facts) == 0 {
		return b
	}
	b = append(b, `"facts":{`...)
	for name, v := range facts {
		mark := len(b)
		b = append(appendString(b, name), ':')
		switch v := v.(type) {
		case string:
			b = appendString(b, v)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = strconv.AppendBool(b, v)
		case []string:
			b = appendList(b, v)
		default:
			b = b[:mark]
			continue
		}
		b = append(b, ',')
	}
	return append(closeList(b, '}'), ',')
}

func (c *cursor) effects() (list []act.Effect, err error) {
	err = c.array(func() error {
		var e act.Effect
		err := c.object(func(name string) error { return c.effectField(&e, name) })
		list = append(list, e)
		return err
	})
	return list, err
}

func (c *cursor) effectField(e *act.Effect, name string) (err error) {
	var s string
	switch name {
	case "kind":
		s, err = c.str()
		e.Kind = act.Kind(s)
	case "tree":
		e.Tree, err = c.boolean()
	case "implied":
		e.Implied, err = c.boolean()
	case "group":
		s, err = c.str()
		e.Group = act.Group(s)
	case "resource":
		err = c.object(func(name string) (err error) {
			switch name {
			case "type":
				s, err = c.str()
				e.Resource.Type = act.ResourceType(s)
			case "text":
				e.Resource.Text, err = c.str()
			case "facts":
				e.Resource.Facts, err = c.facts()
			default:
				err = fmt.Errorf("%w: unknown member %q", errHeader, name)
			}
			return err
		})
	default:
		err = fmt.Errorf("%w: unknown member %q", errHeader, name)
	}
	return err
}

// facts reads facts with the types they have: string, int64, bool, []string.
func (c *cursor) facts() (map[string]any, error) {
	facts := map[string]any{}
	err := c.object(func(name string) (err error) {
		switch c.peek() {
		case '"':
			facts[name], err = c.str()
		case 't', 'f':
			facts[name], err = c.boolean()
		case '[':
			facts[name], err = c.strs()
		default:
			facts[name], err = c.number()
		}
		return err
	})
	return facts, err
}
