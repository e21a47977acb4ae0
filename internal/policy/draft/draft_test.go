package draft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// TestCases runs testdata/*.txtar. Each has pairs of files: "NAME.tools", the
// tools of the server NAME as a JSON array, and "NAME.draft", what must come out:
// the annotation, then a line "? TOOL ARGUMENT: WHY" for each doubt, or "error
// TEXT" alone. RINGFENCE_TEST_UPDATE=1 writes them.
func TestCases(t *testing.T) {
	for _, file := range files(t, "testdata/*.txtar", 2) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range a.Files {
			server, ok := strings.CutSuffix(s.Name, ".tools")
			if !ok {
				continue
			}
			t.Run(server, func(t *testing.T) {
				got := render(Draft(server, append(append([]byte(`{"tools":`), s.Data...), '}')))
				want := &a.Files[i+1]
				if want.Name != server+".draft" {
					t.Fatalf("%s.draft does not follow", server)
				}
				if string(want.Data) != got && !updating() {
					t.Errorf("got:\n%s\nwant:\n%s", got, want.Data)
				}
				want.Data = []byte(got)
			})
		}
		update(t, file, txtar.Format(a))
	}
}

// TestCaptured drafts the captured lists of real servers; testdata/NAME.golden
// has what came out.
func TestCaptured(t *testing.T) {
	for _, c := range captures(t) {
		golden := "testdata/" + c.name + ".golden"
		got := render(Draft(c.Annotation, c.list))
		update(t, golden, []byte(got))
		if want, err := os.ReadFile(golden); err != nil || got != string(want) {
			t.Errorf("%s: not as in %s (%v):\n%s", c.name, golden, err, got)
		}
	}
}

// TestAsStrictAsShipped: where a shipped annotation says that an argument names a
// resource, the draft from the same list says so too, or has a doubt; and what
// the draft takes for observing is so.
func TestAsStrictAsShipped(t *testing.T) {
	shipped, err := policy.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, c := range captures(t) {
		drafted, doubts, err := Draft(c.Annotation, c.list)
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range drafted.Tools {
			s, ok := shipped[c.Annotation].Tools[name]
			if !ok {
				continue
			}
			doubted := func(pointer string) bool {
				return slices.ContainsFunc(doubts, func(d Doubt) bool { return d.Tool == name && d.Argument == pointer })
			}
			for pointer, arg := range s.Args {
				got, covered := find(d.Args, pointer)
				compared++
				if !covered && !doubted("") {
					t.Errorf("%s.%s %s: not covered", c.name, name, pointer)
				}
				if resource(arg.Role) && !resource(got.Role) && !doubted(pointer) {
					t.Errorf("%s.%s %s: %s, shipped is %s", c.name, name, pointer, got.Role, arg.Role)
				}
				if resource(arg.Role) && got.Role == arg.Role && !implies(got, arg.Effects) && !doubted("") {
					t.Errorf("%s.%s %s: %v, shipped is %v", c.name, name, pointer, got.Effects, arg.Effects)
				}
			}
			if d.Group == act.Observe && !observing(s) {
				t.Errorf("%s.%s is drafted as observing, and shipped it is not", c.name, name)
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d arguments were compared", compared)
	}
}

// find returns the argument at a pointer of another annotation of the same tool.
func find(args map[string]policy.Arg, pointer string) (policy.Arg, bool) {
	for _, p := range []string{pointer, strings.TrimSuffix(pointer, "/*"), pointer + "/*"} {
		if a, ok := args[p]; ok {
			return a, true
		}
	}
	for p, a := range args {
		if strings.HasPrefix(p, pointer+"/") {
			return a, true
		}
	}
	return policy.Arg{}, false
}

func resource(r policy.Role) bool {
	return r != "" && r != policy.RolePlain && r != policy.RolePattern && r != policy.RoleRef
}

// implies reports whether who may do all that a does may do kinds too.
func implies(a policy.Arg, kinds []act.Kind) bool {
	for _, k := range kinds {
		if k == act.Stat {
			k = act.Read
		}
		if k == act.Overwrite && slices.Contains(a.Effects, act.Create) { // the resolver tells them apart
			k = act.Create
		}
		if !slices.Contains(a.Effects, k) {
			return false
		}
	}
	return true
}

func observing(t policy.ToolAnnotation) bool {
	for _, a := range t.Args {
		for _, k := range a.Effects {
			if !k.In(act.Observe) {
				return false
			}
		}
	}
	return t.Group == act.Observe || t.Group == ""
}

// Properties D1 to D5 of lists that have the form of definitions.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, err := json.Marshal(map[string]any{"tools": rapid.SliceOfN(definition(), 1, 3).Draw(t, "tools")})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, list)
	})
}

func definition() *rapid.Generator[any] {
	name := rapid.SampledFrom(strings.Fields("path filePath url to command token repo name x a/b ~* files owner args mode"))
	verb := rapid.SampledFrom(strings.Fields("read_file get_x delete_thing frobnicate move_file send_mail run git_push fetch_url"))
	var schema func(depth int) *rapid.Generator[any]
	schema = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			s := map[string]any{"description": rapid.SampledFrom([]string{"", "The path.", "A URL", "x"}).Draw(t, "description")}
			form := rapid.IntRange(0, 9).Draw(t, "form")
			if depth == 0 {
				form = min(form, 3)
			}
			switch form {
			case 0, 1:
				s["type"] = rapid.SampledFrom([]string{"string", "number", "boolean"}).Draw(t, "type")
			case 2:
				s["enum"] = []any{"read", "delete"}
			case 3:
				s["$ref"] = rapid.SampledFrom([]string{"#", "#/properties/path", "#/nowhere", "other"}).Draw(t, "ref")
			case 4, 5:
				s["items"] = schema(depth-1).Draw(t, "items")
			case 6:
				s[rapid.SampledFrom([]string{"anyOf", "allOf"}).Draw(t, "of")] = rapid.SliceOfN(schema(depth-1), 1, 2).Draw(t, "branches")
			default:
				s["properties"] = rapid.MapOfN(name, schema(depth-1), 0, 3).Draw(t, "properties")
				if open := rapid.IntRange(0, 2).Draw(t, "open"); open < 2 {
					s["additionalProperties"] = open == 1
				}
			}
			return s
		})
	}
	return rapid.Custom(func(t *rapid.T) any {
		d := map[string]any{"name": verb.Draw(t, "name"), "inputSchema": map[string]any{
			"type": "object", "properties": rapid.MapOfN(name, schema(3), 0, 4).Draw(t, "properties"),
		}}
		if rapid.Bool().Draw(t, "hints") {
			d["annotations"] = map[string]any{"readOnlyHint": rapid.Bool().Draw(t, "hint")}
		}
		return d
	})
}

// FuzzDraft: whatever a server lists, the draft holds what it promises.
func FuzzDraft(f *testing.F) {
	for _, c := range captures(f) {
		if len(c.list) < 20<<10 { // longer ones are slow to change
			f.Add(c.list)
		}
	}
	for _, file := range files(f, "testdata/*.txtar", 2) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range a.Files {
			f.Add(append(append([]byte(`{"tools":`), s.Data...), '}'))
		}
	}
	f.Fuzz(func(t *testing.T, list []byte) { holds(t, list) })
}

func holds(t rapid.TB, list []byte) {
	a, doubts, err := Draft("x", list)
	if err != nil {
		return
	}
	again, doubtsAgain, _ := Draft("x", list)
	if !bytes.Equal(Format(a), Format(again)) || !slices.Equal(doubts, doubtsAgain) {
		t.Fatal("two drafts of one list differ")
	}
	if _, err := policy.ParseAnnotation("x.json", Format(a)); err != nil {
		t.Fatal(err)
	}
	for _, d := range doubts {
		if a.Tools[d.Tool].Group != "" {
			t.Fatalf("%s has a doubt and a group", d.Tool)
		}
	}
	names, err := strictjson.Values(list, "/tools/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range names {
		covers(t, a, doubts, def.Raw)
	}
}

// covers checks that every property of the outermost schema of def is covered, or
// doubted.
func covers(t rapid.TB, a policy.Annotation, doubts []Doubt, def []byte) {
	name, _, _ := strictjson.Find(def, "/name")
	text, _ := strictjson.Text(name.Raw)
	tool, drafted := a.Tools[text]
	inDoubt := func(pointer string) bool {
		return slices.ContainsFunc(doubts, func(d Doubt) bool {
			return d.Tool == text && (d.Argument == pointer || d.Argument == "" || strings.HasPrefix(d.Argument, pointer+"/"))
		})
	}
	if !drafted {
		if text != "" && goodName(text) && !inDoubt("") {
			t.Fatalf("%s is left out without a doubt", text)
		}
		return
	}
	schema, ok, _ := strictjson.Find(def, "/inputSchema/properties")
	if !ok || schema.Kind != strictjson.Object {
		return
	}
	decoded, _ := strictjson.Decode(schema.Raw)
	for prop := range maps.Keys(decoded.(map[string]any)) {
		pointer := "/" + strictjson.Escape(prop)
		if _, ok := find(tool.Args, pointer); !ok && !inDoubt(pointer) {
			t.Fatalf("%s: %s is neither covered nor in doubt", text, pointer)
		}
	}
}

// Schemas that would unfold without end are left out, soon.
func TestUnbounded(t *testing.T) {
	wide := `{"tools":[{"name":"read_x","inputSchema":{"type":"object","properties":{` +
		strings.Repeat(`"%d":{"$ref":"#"},`, 50) + `"z":{}}}}]}`
	numbers := make([]any, 50)
	for i := range numbers {
		numbers[i] = i
	}
	a, doubts, err := Draft("x", fmt.Appendf(nil, wide, numbers...))
	if err != nil || len(a.Tools) != 0 || len(doubts) != 1 || !strings.Contains(doubts[0].Why, "too large") {
		t.Errorf("%v, %v, %v", a.Tools, doubts, err)
	}
	many := `{"tools":[` + strings.TrimSuffix(strings.Repeat(`{},`, maxTools+1), ",") + `]}`
	if _, _, err := Draft("x", []byte(many)); err == nil {
		t.Error("too many tools are no error")
	}
}

// TestPackageOf: the lines of testdata/packages.txt are a package, "-" for none,
// and an argv.
func TestPackageOf(t *testing.T) {
	b, err := os.ReadFile("testdata/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if want := strings.TrimSuffix(w[0], "-"); PackageOf(w[1:]) != want {
			t.Errorf("%q runs %q, want %q", w[1:], PackageOf(w[1:]), want)
		}
	}
}

// Every shipped annotation reads back as it was.
func TestFormat(t *testing.T) {
	shipped, err := policy.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range shipped {
		back, err := policy.ParseAnnotation(name, Format(*a))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(back)
		want, _ := json.Marshal(a)
		if !bytes.Equal(got, want) {
			t.Errorf("%s reads back as %s", name, got)
		}
	}
}

// A capture is what one version of one server answers to tools/list.
type capture struct {
	name, Annotation string
	list             []byte // with all that the file says
}

func captures(t testing.TB) (all []capture) {
	for _, file := range files(t, "../../../test/corpus/tools/*.json", 4) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := capture{name: strings.TrimSuffix(filepath.Base(file), ".json"), list: b}
		if err := json.Unmarshal(b, &c); err != nil || c.Annotation == "" {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, c)
	}
	return all
}

func files(t testing.TB, pattern string, least int) []string {
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) < least {
		t.Fatalf("%s: %d files, want %d (%v)", pattern, len(all), least, err)
	}
	return all
}

func render(a policy.Annotation, doubts []Doubt, err error) string {
	if err != nil {
		return fmt.Sprintf("error %v\n", err)
	}
	b := string(Format(a))
	for _, d := range doubts {
		b += strings.Join(strings.Fields(fmt.Sprintf("? %s %s: %s", d.Tool, d.Argument, d.Why)), " ") + "\n"
	}
	return b
}

func updating() bool { return os.Getenv("RINGFENCE_TEST_UPDATE") == "1" }

func update(t *testing.T, file string, data []byte) {
	if !updating() {
		return
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkDraft(b *testing.B) {
	for _, c := range captures(b) {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Draft(c.Annotation, c.list); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
