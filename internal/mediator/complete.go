package mediator

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringfence/internal/act/strictjson"
)

// cacheable are the methods whose results say, from 2026-07-28 on, for how long and
// for whom they may be kept.
var cacheable = []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

// codeOf returns the code of the error that line, which answers id, holds; 0 if it
// holds a result.
func codeOf(id, line []byte) int {
	body, failed := bodyOf(id, line)
	if !failed {
		return 0
	}
	v, ok, err := strictjson.Find(body, "/code")
	if err != nil || !ok {
		return codeInternal
	}
	code, err := strconv.Atoi(string(v.Raw))
	if err != nil {
		return codeInternal
	}
	return code
}

// bodyOf returns the result or the error object of a line that [response] built for
// an id.
func bodyOf(id, line []byte) (body []byte, fault bool) {
	rest := bytes.TrimSuffix(line, []byte("}\n"))
	rest = bytes.TrimPrefix(rest, []byte(answerHead))
	if id == nil {
		id = []byte("null")
	}
	rest = bytes.TrimPrefix(rest, id)
	if body, ok := bytes.CutPrefix(rest, []byte(`,"error":`)); ok {
		return body, true
	}
	return bytes.TrimPrefix(rest, []byte(resultHead)), false
}

// complete makes of an answer what a client of the stateless era must have: what kind
// of result it is, and for lists how long it may be kept, which is not at all and by
// nobody else, as the next decision may be another. The state of a server that asks
// for input is sealed. Everything else stays as it is.
//
// The line of p bears id, perhaps of an earlier request of the same exchange; that of
// req takes its place.
func (m *Mediator) complete(who string, id []byte, req message, p parcel) Answer {
	a := Answer{Line: p.line, Written: p.written}
	body, failed := bodyOf(id, p.line)
	if failed {
		a.Code = codeOf(id, p.line)
		if !bytes.Equal(id, req.id()) {
			a.Line = response(req.id(), "error", body)
		}
		return a
	}
	edits, err := m.completion(who, req, body)
	for i := range edits { // in the line, so that a long one is copied once
		edits[i].Start += len(answerHead) + len(id) + len(resultHead)
		edits[i].End += len(answerHead) + len(id) + len(resultHead)
	}
	if !bytes.Equal(id, req.id()) {
		edits = append(edits, strictjson.Edit{Start: len(answerHead), End: len(answerHead) + len(id), New: req.id()})
	}
	if err == nil {
		a.Line, err = strictjson.Splice(p.line, edits)
	}
	if err != nil {
		return Answer{Line: fault(req.id(), codeInternal, "the result cannot be read"), Code: codeInternal, Written: p.written}
	}
	return a
}

// What an answer begins with, and what stands between its id and a result.
const (
	answerHead = `{"jsonrpc":"2.0","id":`
	resultHead = `,"result":`
)

// completion returns the edits that complete makes in a result.
func (m *Mediator) completion(who string, req message, body []byte) ([]strictjson.Edit, error) {
	members, err := strictjson.Envelope(body, strictjson.Limits{Size: len(body), Depth: resultDepth})
	if err != nil {
		return nil, err
	}
	at := map[string]strictjson.Member{}
	for _, v := range members {
		at[v.Name] = v
	}
	var edits []strictjson.Edit
	var added []byte
	add := func(name, value string) {
		if _, ok := at[name]; !ok {
			added = append(append(append(added, '"'), name...), `":`+value+`,`...)
		}
	}
	add("resultType", `"complete"`)
	if slices.Contains(cacheable, req.method) {
		add("ttlMs", "0")
		add("cacheScope", `"private"`)
		if v, ok := at["cacheScope"]; ok {
			edits = append(edits, strictjson.Edit{Start: v.Start, End: v.End, New: []byte(`"private"`)})
		}
	}
	if v, ok := at["requestState"]; ok && wantsInput(body) {
		state, err := m.seals.seal(stateServer, who, digestOf(req), body[v.Start:v.End], time.Now().Add(suspendFor))
		if err != nil {
			return nil, err
		}
		edits = append(edits, strictjson.Edit{Start: v.Start, End: v.End, New: []byte(`"` + state + `"`)})
	}
	if len(members) == 0 {
		added = bytes.TrimSuffix(added, []byte{','})
	}
	if len(added) > 0 {
		edits = append(edits, strictjson.Edit{Start: 1, End: 1, New: added})
	}
	return edits, nil
}
