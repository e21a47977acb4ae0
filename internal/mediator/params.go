package mediator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"ringfence/internal/act/strictjson"
)

// params are where the parts of a request that is no call of a tool are in its line.
type params struct {
	row         method
	at          span
	known       []param // in the order of the line
	meta, token span
}

// A param is one member of params that is decided on.
type param struct {
	name string
	at   span
	own  []byte // what the server knows it by, where that is not what is written
}

// readParams finds the parts of a request that readClient accepted.
func readParams(m message, row method) (params, error) {
	p := params{row: row, at: m.params}
	if !m.params.ok() {
		return p, errors.New("params are missing")
	}
	members, err := within(m.raw, m.params, append(slices.Clip(row.known), "_meta"))
	if err != nil {
		return p, err
	}
	for _, v := range members {
		at := span{v.Start, v.End}
		switch {
		case slices.Contains(row.known, v.Name):
			p.known = append(p.known, param{name: v.Name, at: at})
		case v.Name == "_meta":
			p.meta = at
			if p.token, err = readToken(m.raw, at); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// member returns the known member of that name, nil if it is not given.
func (p *params) member(name string) *param {
	for i := range p.known {
		if p.known[i].name == name {
			return &p.known[i]
		}
	}
	return nil
}

// text returns the string that a known member is.
func (p *params) text(m message, name string) (string, error) {
	v := p.member(name)
	if v == nil {
		return "", fmt.Errorf("%s is missing", name)
	}
	text, err := strictjson.Text(v.at.of(m.raw))
	if err != nil {
		return "", fmt.Errorf("%s is not a string", name)
	}
	return text, nil
}

// decided is the object of the known members, as the server knows them.
func (p *params) decided(m message) []byte {
	b := []byte{'{'}
	for i, v := range p.known {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quote(v.name)...), ':')
		if v.own != nil {
			b = append(b, v.own...)
		} else {
			b = append(b, v.at.of(m.raw)...)
		}
	}
	return append(b, '}')
}

// toServer returns the line of the request as the server gets it, with args, an object of
// known members, in place of those that are written, and without what is not decided.
func (p *params) toServer(m message, id int64, args []byte) ([]byte, error) {
	left, err := m.only(p.row.known)
	if err != nil {
		return nil, err
	}
	if &left.raw[0] != &m.raw[0] {
		q, err := readParams(left, p.row)
		if err != nil {
			return nil, err
		}
		m, p = left, &q
	}
	number := strconv.AppendInt(nil, id, 10)
	edits := []strictjson.Edit{
		{Start: m.idAt.start, End: m.idAt.end, New: number},
		{Start: len(m.raw), End: len(m.raw), New: []byte{'\n'}},
	}
	if p.token.ok() {
		edits = append(edits, strictjson.Edit{Start: p.token.start, End: p.token.end, New: number})
	}
	members, err := strictjson.Members(args, strictjson.Limits{})
	if err != nil {
		return nil, fmt.Errorf("reading what is dispatched: %w", err)
	}
	var added []byte
	for _, v := range members {
		raw := oneLine(args[v.Start:v.End])
		old := p.member(v.Name)
		switch {
		case old == nil:
			added = append(append(append(added, quote(v.Name)...), ':'), raw...)
			added = append(added, ',')
		case !bytes.Equal(old.at.of(m.raw), raw):
			edits = append(edits, strictjson.Edit{Start: old.at.start, End: old.at.end, New: raw})
		}
	}
	if added != nil {
		if len(p.known) == 0 && !p.meta.ok() {
			added = bytes.TrimSuffix(added, []byte{','})
		}
		edits = append(edits, strictjson.Edit{Start: p.at.start + 1, End: p.at.start + 1, New: added})
	}
	return strictjson.Splice(m.raw, edits)
}

// without returns m without a member of its params.
func (m message) without(name string) (message, error) {
	members, err := within(m.raw, m.params, nil)
	if err != nil {
		return message{}, err
	}
	i := slices.IndexFunc(members, func(v strictjson.Member) bool { return v.Name == name })
	if i < 0 {
		return m, nil
	}
	cut := strictjson.Edit{Start: members[i].At, End: members[i].End}
	switch {
	case i > 0:
		cut.Start = members[i-1].End
	case len(members) > 1:
		cut.End = members[1].At
	}
	return m.edited(cut)
}

// edited returns m with edits of its line.
func (m message) edited(edits ...strictjson.Edit) (message, error) {
	line, err := strictjson.Splice(m.raw, edits)
	if err != nil {
		return message{}, err
	}
	out, err := readClient(line)
	out.x = m.x
	return out, err
}
