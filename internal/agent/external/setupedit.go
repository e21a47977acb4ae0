package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"ringfence/internal/act/strictjson"
)

// bom begins a file of some editors.
const bom = "\ufeff"

// An object is one in a text, by its places there.
type object struct {
	start, end int // from '{' to behind '}'
	members    []strictjson.Member
}

func objectAt(plain []byte, start, end int, name string) (object, error) {
	found, err := strictjson.Members(plain[start:end], strictjson.Limits{Size: maxFile})
	if err != nil {
		return object{}, fmt.Errorf("%s: %s must be an object", place(plain, start), name)
	}
	members := slices.Clone(found)
	for i := range members {
		members[i].Start, members[i].End = members[i].Start+start, members[i].End+start
	}
	for start < end && plain[start] != '{' {
		start++
	}
	for end > start && plain[end-1] != '}' {
		end--
	}
	return object{start, end, members}, nil
}

func (o object) member(name string) (strictjson.Member, bool) {
	i := slices.IndexFunc(o.members, func(m strictjson.Member) bool { return m.Name == name })
	if i < 0 {
		return strictjson.Member{}, false
	}
	return o.members[i], true
}

// applyJSON puts e into data.
func (e edit) applyJSON(data []byte) ([]byte, error) {
	whole := data
	data, marked := bytes.CutPrefix(data, []byte(bom))
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{\n}\n")
	}
	plain, err := standard(data)
	if err != nil {
		return nil, err
	}
	changes, err := e.change(data, plain)
	if err != nil || len(changes) == 0 {
		return whole, err
	}
	out, err := strictjson.Splice(data, changes)
	if err != nil {
		return nil, fmt.Errorf("changing the settings: %w", err)
	}
	if _, err := standard(out); err != nil {
		return nil, fmt.Errorf("changing the settings: %w", err)
	}
	if marked {
		out = append([]byte(bom), out...)
	}
	return out, nil
}

// change is how e is put into data, nil if it is there. plain is data without comments, of
// the same places.
func (e edit) change(data, plain []byte) ([]strictjson.Edit, error) {
	at, err := objectAt(plain, 0, len(plain), "the file")
	for depth, name := range e.path {
		if err != nil {
			return nil, err
		}
		m, ok := at.member(name)
		if !ok {
			return insert(data, at, e.path[depth], e.nested(depth+1))
		}
		if depth < len(e.path)-1 {
			at, err = objectAt(plain, m.Start, m.End, strconv.Quote(name))
			continue
		}
		switch raw := plain[m.Start:m.End]; {
		case e.first:
			return nil, nil
		case e.list:
			return e.element(data, plain, m)
		case same(raw, e.value):
			return nil, nil
		default:
			return []strictjson.Edit{{Start: m.Start, End: m.End, New: written1(data, m.Start, e.value)}}, nil
		}
	}
	return nil, err
}

// nested is what stands at the member that path[:from] names, where nothing does yet.
func (e edit) nested(from int) json.RawMessage {
	value := e.value
	if e.list {
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	for _, name := range slices.Backward(e.path[from:]) {
		value = slices.Concat([]byte("{"+strconv.Quote(name)+":"), value, []byte("}"))
	}
	return value
}

// insert puts a member behind the last one of at.
func insert(data []byte, at object, name string, value json.RawMessage) ([]strictjson.Edit, error) {
	n := len(at.members)
	if !bytes.Contains(bytes.TrimSpace(data), []byte("\n")) { // on one line, as programs write
		text := strconv.Quote(name) + ":" + string(value)
		if n > 0 {
			return []strictjson.Edit{{Start: at.members[n-1].End, End: at.members[n-1].End, New: []byte("," + text)}}, nil
		}
		return []strictjson.Edit{{Start: at.start + 1, End: at.start + 1, New: []byte(text)}}, nil
	}
	outer := indentOf(data, at.start)
	inner := outer + unit(data)
	if n > 0 && bytes.Contains(data[at.start:at.members[0].Start], []byte("\n")) {
		inner = indentOf(data, at.members[0].Start)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, value, inner, unit(data)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	text := "\n" + inner + strconv.Quote(name) + ": " + pretty.String()
	if n > 0 {
		return behind(data, at.members[n-1].End, at.end, text, outer), nil
	}
	if !bytes.Contains(data[at.start:at.end], []byte("\n")) {
		text += "\n" + outer
	}
	return []strictjson.Edit{{Start: at.start + 1, End: at.start + 1, New: []byte(text)}}, nil
}

// behind puts text, a line of its own, behind the last value of what ends at end, and
// behind the comment that is on the line of that value.
func behind(data []byte, last, end int, text, outer string) []strictjson.Edit {
	comma, line := after(data[:end-1], last)
	var edits []strictjson.Edit
	if comma < 0 {
		edits = append(edits, strictjson.Edit{Start: last, End: last, New: []byte(",")})
	}
	if !bytes.Contains(data[line:end], []byte("\n")) {
		text += "\n" + outer
	}
	if line == last && comma < 0 {
		edits[0].New = append(edits[0].New, text...)
		return edits
	}
	return append(edits, strictjson.Edit{Start: line, End: line, New: []byte(text)})
}

// after looks at what follows a value at from, where only a comma and comments do: where
// the comma is, -1 if there is none, and where those of the same line end.
func after(data []byte, from int) (comma, line int) {
	comma, line = -1, from
	same := true // still on the line of the value
	for i := from; i < len(data); i++ {
		end := from
		switch rest := data[i:]; {
		case bytes.HasPrefix(rest, []byte("//")):
			if end = i + bytes.IndexByte(rest, '\n'); end < i {
				end = len(data)
			}
			i = end - 1
		case bytes.HasPrefix(rest, []byte("/*")):
			if end = i + bytes.Index(rest, []byte("*/")) + 2; end < i+2 {
				return comma, line
			}
			i = end - 1
		case data[i] == ',' && comma < 0:
			comma, end = i, i+1
			if !same {
				return comma, end
			}
		case data[i] == '\n':
			same = false
		case !bytes.ContainsRune([]byte(" \t\r"), rune(data[i])):
			return comma, line
		}
		if same && end > line {
			line = end
		}
	}
	return comma, line
}

// element puts e into the list m, in the place of one of ours.
func (e edit) element(data, plain []byte, m strictjson.Member) ([]strictjson.Edit, error) {
	found, err := elements(plain[m.Start:m.End])
	if err != nil {
		return nil, fmt.Errorf("%s: %q must be a list", place(plain, m.Start), m.Name)
	}
	for _, v := range found {
		if same(v.Raw, e.value) {
			return nil, nil
		}
		if e.ours(v.Raw) {
			return []strictjson.Edit{{Start: m.Start + v.Start, End: m.Start + v.End, New: written1(data, m.Start+v.Start, e.value)}}, nil
		}
	}
	if n := len(found); n > 0 {
		at, end := m.Start+found[n-1].Start, m.Start+found[n-1].End
		if !bytes.Contains(data[m.Start:m.End], []byte("\n")) {
			return []strictjson.Edit{{Start: end, End: end, New: append([]byte(", "), e.value...)}}, nil
		}
		return behind(data, end, m.End, "\n"+indentOf(data, at)+string(written1(data, at, e.value)), indentOf(data, m.Start)), nil
	}
	return []strictjson.Edit{{Start: m.Start, End: m.End, New: written1(data, m.Start, slices.Concat([]byte("["), e.value, []byte("]")))}}, nil
}

// elements are those of the list raw; an error if it is none.
func elements(raw []byte) ([]strictjson.Value, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return nil, errors.New("no list")
	}
	return strictjson.ValuesLimits(raw, strictjson.Limits{Size: maxFile}, "/*")
}

// ours reports whether an element is one that a change of ours has left, perhaps with our
// program elsewhere.
func (e edit) ours(raw []byte) bool {
	mine, theirs := commands(e.value), commands(raw)
	return len(mine) == 1 && len(theirs) == 1 && strings.Contains(theirs[0], "ringfence") &&
		strings.HasSuffix(theirs[0], mine[0][strings.LastIndex(mine[0], " hook "):])
}

// commands are the commands that a hook runs.
func commands(raw []byte) []string {
	var hook struct {
		Command string `json:"command"`
		Hooks   []struct {
			Command string `json:"command"`
		} `json:"hooks"`
	}
	if json.Unmarshal(raw, &hook) != nil {
		return nil // another form is not ours
	}
	var all []string
	if hook.Command != "" {
		all = append(all, hook.Command)
	}
	for _, h := range hook.Hooks {
		all = append(all, h.Command)
	}
	return all
}

// removeJSON takes e out of data.
func (e edit) removeJSON(data []byte) ([]byte, error) {
	body, marked := bytes.CutPrefix(data, []byte(bom))
	plain, err := standard(body)
	if err != nil {
		return nil, err
	}
	pointer, above := "", ""
	for _, name := range e.path {
		above, pointer = pointer, pointer+"/"+strictjson.Escape(name)
	}
	found, ok, err := strictjson.Find(plain, pointer)
	if err != nil {
		return nil, placed(plain, err)
	}
	if !ok {
		return data, nil
	}
	if e.list {
		above = pointer
	}
	siblings, err := strictjson.ValuesLimits(plain, strictjson.Limits{Size: maxFile}, above+"/*")
	if err != nil {
		return nil, placed(plain, err)
	}
	i := slices.IndexFunc(siblings, func(v strictjson.Value) bool {
		if e.list {
			return found.Kind == strictjson.Array && (same(v.Raw, e.value) || e.ours(v.Raw))
		}
		return v.Start == found.Start
	})
	if i < 0 {
		return data, nil
	}
	out, err := without(body, siblings, i)
	if err == nil {
		_, err = standard(out)
	}
	if err != nil || !marked {
		return out, err
	}
	return append([]byte(bom), out...), nil
}

// without is data without one of the values of an object or a list. Comments before it
// stay.
func without(data []byte, siblings []strictjson.Value, i int) ([]byte, error) {
	if i > 0 && i == len(siblings)-1 {
		gap := data[siblings[i-1].End:siblings[i].Start]
		comma, _ := after(gap, 0)
		name := siblings[i].Pointer[strings.LastIndex(siblings[i].Pointer, "/")+1:]
		end := len(gap)
		if at := bytes.LastIndex(gap, []byte(strconv.Quote(name))); at > comma {
			end = at
		}
		if comma >= 0 {
			between := bytes.TrimRight(slices.Concat(gap[:comma], gap[comma+1:end]), " \t\r\n")
			rest := data[siblings[i].End:]
			if bytes.Contains(between, []byte("//")) && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r"), []byte("\n")) {
				between = append(between, '\n')
			}
			return slices.Concat(data[:siblings[i-1].End], between, rest), nil
		}
	}
	v, err := hujson.Parse(bytes.Clone(data))
	if err == nil {
		err = v.Patch([]byte(`[{"op":"remove","path":` + strconv.Quote(siblings[i].Pointer) + `}]`))
	}
	if err != nil {
		return nil, fmt.Errorf("1:1: %w", err)
	}
	return v.Pack(), nil
}

// same reports whether two texts are the same value.
func same(a, b []byte) bool {
	x, errX := strictjson.CanonicalRounded(a)
	y, errY := strictjson.CanonicalRounded(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// written1 is value as it is written at a place of data.
func written1(data []byte, at int, value json.RawMessage) []byte {
	var b bytes.Buffer
	if !bytes.Contains(bytes.TrimSpace(data), []byte("\n")) || json.Indent(&b, value, indentOf(data, at), unit(data)) != nil {
		return value
	}
	return b.Bytes()
}

// indentOf is what the line of a place begins with.
func indentOf(data []byte, at int) string {
	line := data[bytes.LastIndexByte(data[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// unit is by how much data is indented: two spaces if it is not.
func unit(data []byte) string {
	for line := range bytes.Lines(data) {
		if rest := bytes.TrimLeft(line, " \t"); len(rest) < len(line) && len(bytes.TrimSpace(rest)) > 0 {
			return string(line[:len(line)-len(rest)])
		}
	}
	return "  "
}

// What is between these lines of a TOML file is ours.
const (
	blockBegin = "# Added by \"ringfence init\"; \"ringfence init --undo\" takes it out.\n"
	blockEnd   = "# The end of what \"ringfence init\" has added.\n"
)

// applyTOML puts the table e at the end of data.
func (e edit) applyTOML(data []byte) ([]byte, error) {
	rest := withoutBlock(data)
	var file map[string]any
	if err := toml.Unmarshal(rest, &file); err != nil {
		return nil, fmt.Errorf("%s", tomlError(err))
	}
	at := any(file)
	for _, name := range e.path {
		table, _ := at.(map[string]any) // nil of anything else
		at = table[name]
	}
	if at != nil {
		return nil, fmt.Errorf("1:1: it has a table [%s] already", strings.Join(e.path, "."))
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.value, &members); err != nil {
		return nil, fmt.Errorf("writing [%s]: %w", strings.Join(e.path, "."), err)
	}
	var b bytes.Buffer
	b.Write(rest)
	if len(rest) > 0 && !bytes.HasSuffix(rest, []byte("\n")) {
		b.WriteByte('\n')
	}
	b.WriteString(blockBegin + "[" + strings.Join(e.path, ".") + "]\n")
	for _, name := range slices.Sorted(maps.Keys(members)) { // strings, numbers and lists are the same in both
		fmt.Fprintf(&b, "%s = %s\n", name, members[name])
	}
	b.WriteString(blockEnd)
	if err := toml.Unmarshal(b.Bytes(), &file); err != nil {
		return nil, fmt.Errorf("adding [%s]: %s", strings.Join(e.path, "."), tomlError(err))
	}
	return b.Bytes(), nil
}

// withoutBlock is data without what is ours.
func withoutBlock(data []byte) []byte {
	before, after, ok := bytes.Cut(data, []byte(blockBegin))
	if !ok {
		return data
	}
	_, rest, ok := bytes.Cut(after, []byte(blockEnd))
	if !ok {
		return data
	}
	return slices.Concat(before, rest)
}

func tomlError(err error) string {
	if e, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Sprintf("%d:%d: %s", e.Position.Line, max(1, e.Position.Col), e.Message)
	}
	return "1:1: " + err.Error()
}
