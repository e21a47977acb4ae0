package mediator

import (
	"regexp"
	"slices"
	"strconv"
	"sync"

	"ringfence/internal/act/strictjson"
)

// What a server gets of a request of a client is what was decided, what our side sets, and
// the little below that only carries the request. Anything else is left out: it would be a
// place where an agent can write to a server that it may only read.

// traceParent is the one member of _meta that carries the context of a trace and has a form
// without room for text (W3C Trace Context). Its tracestate and baggage are text.
const traceParent = "traceparent"

var traceForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
})

// only returns m as its server may have it: with the known members of params, and without
// what is not decided. It is m itself if there is nothing else in it.
func (m message) only(known []string) (message, error) {
	edits, _, err := leftOut(m.raw, span{0, len(m.raw)}, func(v strictjson.Member, _ []byte) bool {
		return v.Name == "jsonrpc" || v.Name == "id" || v.Name == "method" || v.Name == "params"
	})
	if err != nil {
		return m, err
	}
	answers := m.x != nil && m.x.stateless // [front.goOn] has had them decided
	inner, members, err := leftOut(m.raw, m.params, func(v strictjson.Member, _ []byte) bool {
		return slices.Contains(known, v.Name) || v.Name == "_meta" ||
			answers && !v.Escaped && (v.Name == "inputResponses" || v.Name == "requestState")
	})
	edits = append(edits, inner...)
	for _, v := range members {
		keep := inMeta
		switch {
		case v.Name == "task" && slices.Contains(known, "task"):
			keep = inTask
		case v.Name != "_meta":
			continue
		}
		if inner, _, err = leftOut(m.raw, span{v.Start, v.End}, keep); err != nil {
			return m, err
		}
		edits = append(edits, inner...)
	}
	if err != nil || len(edits) == 0 {
		return m, err
	}
	return m.edited(edits...)
}

func inMeta(v strictjson.Member, raw []byte) bool {
	text, err := strictjson.Text(raw)
	switch {
	case v.Name == "progressToken":
		return true
	case v.Escaped || err != nil:
		return false
	case v.Name == traceParent:
		return traceForm().MatchString(text)
	}
	return false
}

func inTask(v strictjson.Member, raw []byte) bool {
	_, err := strconv.ParseUint(string(raw), 10, 53)
	return v.Name == "ttl" && !v.Escaped && err == nil
}

// leftOut returns the edits that take out of the object at s all members that keep does not
// want, and its members, placed in the whole of raw.
func leftOut(raw []byte, s span, keep func(v strictjson.Member, raw []byte) bool) ([]strictjson.Edit, []strictjson.Member, error) {
	object := s.of(raw)
	members, err := strictjson.Envelope(object, strictjson.Limits{Size: len(object), Depth: resultDepth})
	if err != nil {
		return nil, nil, err
	}
	gone := make([]bool, len(members))
	for i, v := range members {
		gone[i] = !keep(v, object[v.Start:v.End])
	}
	edits := removals(object, members, gone)
	for i := range edits {
		edits[i].Start += s.start
		edits[i].End += s.start
	}
	left := members[:0]
	for i, v := range members {
		if !gone[i] {
			v.At, v.Start, v.End = v.At+s.start, v.Start+s.start, v.End+s.start
			left = append(left, v)
		}
	}
	return edits, left, nil
}
