package mediator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"ringfence/internal/act/strictjson"
)

// ErrListed says that a list of servers has one of that name.
var ErrListed = errors.New("there is a server of that name")

// AddServer returns the list of servers src with a server called name, whose entry is
// raw, at its end, or in the place of the one that has that name if replace is set. All
// else stays as it is written. An empty src is a list of no servers. The error is
// [ErrListed] if the name is taken; others begin with line:column.
func AddServer(src []byte, name string, raw []byte, replace bool) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(src)) == 0 {
		src = []byte("{\n  \"mcpServers\": {\n  }\n}\n")
	}
	r := &serversReader{src: src}
	top, err := r.members(span{0, len(src)}, "the file")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(top, func(m strictjson.Member) bool { return m.Name == "mcpServers" })
	if i < 0 {
		return nil, r.fail(0, `the key "mcpServers" is missing`)
	}
	list := span{top[i].Start, top[i].End}
	entries, err := r.members(list, `"mcpServers"`)
	if err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, raw, "    ", "  "); err != nil {
		return nil, fmt.Errorf("adding server %s: %w", name, err)
	}
	edit := strictjson.Edit{New: pretty.Bytes()}
	if at := slices.IndexFunc(entries, func(m strictjson.Member) bool { return m.Name == name }); at >= 0 {
		if !replace {
			return nil, ErrListed
		}
		edit.Start, edit.End = entries[at].Start, entries[at].End
	} else {
		edit.New = slices.Concat([]byte("\n    "), quote(name), []byte(": "), edit.New)
		edit.Start, edit.End = list.start+1, list.end-1
		if n := len(entries); n > 0 {
			edit.Start, edit.New = entries[n-1].End, append([]byte(","), edit.New...)
		}
		edit.New = append(edit.New, "\n  "...)
	}
	out, err := strictjson.Splice(src, []strictjson.Edit{edit})
	if err != nil {
		return nil, fmt.Errorf("adding server %s: %w", name, err)
	}
	return out, nil
}
