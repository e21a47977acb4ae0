package resolve

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// "go test ./internal/gate/resolve -run TestPins -update" writes the pins of
// every captured definition into the shipped annotations.
var update = flag.Bool("update", false, "write the pins of captured tool definitions into the annotations")

// A capture is what one version of one server answers to tools/list.
type capture struct {
	Name       string            // of the file
	Annotation string            `json:"annotation"`
	Package    string            `json:"package"`
	Version    string            `json:"version"`
	Tools      []json.RawMessage `json:"tools"`
	Prompts    []json.RawMessage `json:"prompts"`
}

type definition struct {
	Name        string `json:"name"`
	InputSchema schema `json:"inputSchema"`
}

type schema struct {
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Enum       []any             `json:"enum"`
	Default    any               `json:"default"`
}

const annotationsDir = "../../policy/annotations"

// definitions calls f with each definition of c, and with the name that it is pinned by.
func (c capture) definitions(t *testing.T, f func(raw json.RawMessage, d definition)) {
	t.Helper()
	for i, raw := range slices.Concat(c.Tools, c.Prompts) {
		var d definition
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		if i >= len(c.Tools) {
			d.Name = policy.PromptTool + d.Name
		}
		f(raw, d)
	}
}

// captures reads those of other people's servers, which are kept, and those of
// our own, which are what they embed.
func captures(t *testing.T) []capture {
	t.Helper()
	var all []capture
	kept, _ := filepath.Glob("../../../test/corpus/tools/*.json")
	own, _ := filepath.Glob("../../server/*/tools.json")
	if len(kept) < 4 || len(own) < 2 {
		t.Fatalf("captures are missing: %q %q", kept, own)
	}
	for _, name := range append(kept, own...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := capture{Name: name}
		if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
			c.Annotation = filepath.Base(filepath.Dir(name))
			err = json.Unmarshal(b, &c.Tools)
		} else {
			err = json.Unmarshal(b, &c)
		}
		if err != nil || len(c.Tools) == 0 {
			t.Fatalf("%s: %v, %d tools", name, err, len(c.Tools))
		}
		all = append(all, c)
	}
	return all
}

func readAnnotation(t *testing.T, name string) *policy.Annotation {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(annotationsDir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := policy.ParseAnnotation(name+".json", b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAnnotationsCover holds the annotations against the captured schemas: every
// property is covered, and nothing is named that no definition has.
func TestAnnotationsCover(t *testing.T) {
	if all, err := policy.Shipped(); err != nil || all["github"] == nil || all["fetch"] == nil {
		t.Fatalf("the shipped annotations are %v, %v", slices.Collect(maps.Keys(all)), err)
	}
	known := map[string]map[string][]schema{} // annotation, tool, every schema of it
	for _, c := range captures(t) {
		ann := readAnnotation(t, c.Annotation)
		if known[c.Annotation] == nil {
			known[c.Annotation] = map[string][]schema{}
		}
		c.definitions(t, func(_ json.RawMessage, d definition) {
			tool, ok := ann.Tools[d.Name]
			if !ok {
				t.Errorf("%s: %s is not annotated", c.Name, d.Name)
				return
			}
			known[c.Annotation][d.Name] = append(known[c.Annotation][d.Name], d.InputSchema)
			cover := coverage{args: tool.Args}
			for _, p := range d.InputSchema.pointers("") {
				if _, _, ok := cover.find(p, false); !ok {
					t.Errorf("%s: %s: argument %s is not covered", c.Name, d.Name, p)
				}
			}
		})
	}
	for name, tools := range known {
		for tool, ta := range readAnnotation(t, name).Tools {
			schemas, ok := tools[tool]
			if !ok {
				t.Errorf("%s: tool %s does not exist", name, tool)
			}
			for pointer, arg := range ta.Args {
				if ok && !slices.ContainsFunc(schemas, func(s schema) bool { return s.fits(pointer, arg) }) {
					t.Errorf("%s: %s: argument %s does not exist, or has another enum or default", name, tool, pointer)
				}
			}
		}
	}
}

// pointers returns a concrete pointer for every place that a value can stand.
func (s schema) pointers(at string) []string {
	var all []string
	for name, p := range s.Properties {
		all = append(all, p.pointers(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))...)
	}
	if s.Items != nil {
		all = append(all, s.Items.pointers(at+"/0")...)
	}
	if all == nil && at != "" {
		all = []string{at}
	}
	return all
}

// fits reports whether pointer is in s, with the enum and default of arg if it is
// a switch that conditions depend on.
func (s schema) fits(pointer string, arg policy.Arg) bool {
	for token := range strings.SplitSeq(pointer[1:], "/") {
		if token == "*" && s.Items != nil {
			s = *s.Items
			continue
		}
		next, ok := s.Properties[token]
		if !ok {
			return false
		}
		s = next
	}
	if arg.Role != policy.RolePlain {
		return true
	}
	if arg.Bool != (s.Type == "boolean") || len(arg.Enum) > 0 && !reflect.DeepEqual(arg.Enum, s.Enum) {
		return false
	}
	return arg.Default == nil || reflect.DeepEqual(arg.Default, s.Default)
}

func TestPins(t *testing.T) {
	pins := map[string]map[string][]string{}
	for _, c := range captures(t) {
		if pins[c.Annotation] == nil {
			pins[c.Annotation] = map[string][]string{}
		}
		c.definitions(t, func(raw json.RawMessage, d definition) {
			hash, err := policy.DefinitionHash(raw)
			if err != nil {
				t.Fatal(err)
			}
			list := append(pins[c.Annotation][d.Name], hash)
			slices.Sort(list)
			pins[c.Annotation][d.Name] = slices.Compact(list)
		})
	}
	for name, tools := range pins {
		if *update {
			writePins(t, filepath.Join(annotationsDir, name+".json"), tools)
		}
		ann := readAnnotation(t, name)
		for tool, want := range tools {
			if got := ann.Tools[tool].Pins; !slices.Equal(got, want) {
				t.Errorf("%s: %s has the pins %v, want %v; run this test with -update", name, tool, got, want)
			}
		}
	}
}

// writePins changes the pins in the file and nothing else.
func writePins(t *testing.T, file string, tools map[string][]string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		list, _ := json.Marshal(tools[tool])
		list = bytes.ReplaceAll(list, []byte(","), []byte(", "))
		at := "/tools/" + strictjson.Escape(tool)
		old, ok, err := strictjson.Find(b, at+"/pins")
		edit := strictjson.Edit{Start: old.Start, End: old.End, New: list}
		if err == nil && !ok {
			var obj strictjson.Value
			obj, ok, err = strictjson.Find(b, at)
			edit = strictjson.Edit{Start: obj.Start + 1, End: obj.Start + 1, New: fmt.Appendf(nil, "\n      \"pins\": %s,", list)}
		}
		if err != nil || !ok {
			t.Fatalf("%s: finding %s: %v", file, at, err)
		}
		if b, err = strictjson.Splice(b, []strictjson.Edit{edit}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
