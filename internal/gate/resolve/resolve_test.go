package resolve

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A fixture is the world of one file of cases: a tree below root and named
// annotations.
type fixture struct {
	root string
	view View
	anns map[string]*policy.ToolAnnotation
}

// TestCases runs testdata/*.txtar. A file holds
//
//	-- tree --         one entry a line: "dir/", "file", "link -> target",
//	                   "name = file" (another name of a file), "prog*" (executable)
//	-- annotations --  a JSON object of named tool annotations
//	-- file NAME --    contents of NAME in the tree
//	-- case ID --      lines as below
//
// and a case one or more of
//
//	call ANNOTATION ARGUMENTS    (or the shipped SERVER.TOOL)
//	exec ARGUMENTS
//	named KIND TEXT
//	program NAME
//	  kind text [facts]          an effect that must come out, in order
//	  dispatch ARGUMENTS         what is dispatched; without it, what was given
//	  error TEXT                 part of the error
//
// $R is the root of the tree. The workspace is $R/w, or the directory of the line
// in the section "workspace", the home $R/home/u, our own
// state $R/home/u/.ringfence, the path $R/bin and $R/usr/bin.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f := newFixture(t, a)
			for _, s := range a.Files {
				if id, ok := strings.CutPrefix(s.Name, "case "); ok {
					t.Run(id, func(t *testing.T) { f.runCase(t, string(s.Data)) })
				}
			}
		})
	}
}

func newFixture(t testing.TB, a *txtar.Archive) *fixture {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{root: root, anns: map[string]*policy.ToolAnnotation{}}
	f.view = View{
		Workspace: root + "/w", Home: root + "/home/u",
		OwnState: []string{root + "/home/u/.ringfence"},
		Path:     []string{root + "/bin", root + "/usr/bin"},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"w", "home/u/.ringfence", "bin", "usr/bin"} {
		must(os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, s := range a.Files {
		switch {
		case s.Name == "tree":
			for line := range strings.Lines(string(s.Data)) {
				must(f.grow(strings.TrimSpace(line)))
			}
		case s.Name == "workspace":
			f.view.Workspace = root + "/" + strings.TrimSpace(string(s.Data))
		case s.Name == "later":
			for name := range strings.FieldsSeq(string(s.Data)) {
				f.view.Later = append(f.view.Later, root+"/"+name)
			}
		case s.Name == "annotations":
			must(json.Unmarshal(s.Data, &f.anns))
		case strings.HasPrefix(s.Name, "file "):
			name := filepath.Join(root, strings.TrimPrefix(s.Name, "file "))
			must(os.MkdirAll(filepath.Dir(name), 0o755))
			must(os.WriteFile(name, []byte(strings.ReplaceAll(string(s.Data), "$R", root)), 0o644))
		}
	}
	return f
}

// grow makes one entry of the tree.
func (f *fixture) grow(line string) error {
	at := func(name string) string { return f.root + "/" + name }
	if line == "" {
		return nil
	}
	if name, ok := strings.CutSuffix(line, "/"); ok {
		return os.MkdirAll(at(name), 0o755)
	}
	name, target, link := strings.Cut(line, " -> ")
	name, other, hard := strings.Cut(name, " = ")
	name, program := strings.CutSuffix(name, "*")
	if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
		return err
	}
	switch {
	case link:
		return os.Symlink(strings.ReplaceAll(target, "$R", f.root), at(name))
	case hard:
		return os.Link(at(other), at(name))
	}
	mode := fs.FileMode(0o644)
	if program {
		mode = 0o755
	}
	return os.WriteFile(at(name), []byte("x"), mode)
}

// An outcome is what came of one line of a case, as a case writes it.
type outcome struct{ effects, rest []string }

func (f *fixture) runCase(t *testing.T, body string) {
	var got, want outcome
	var what string
	check := func() {
		t.Helper()
		if what != "" && (!slices.Equal(got.effects, want.effects) || !slices.Equal(got.rest, want.rest)) {
			t.Errorf("%s\ngot:\n  %s\n  %s\nwant:\n  %s\n  %s", what, strings.Join(got.effects, "\n  "), strings.Join(got.rest, "\n  "),
				strings.Join(want.effects, "\n  "), strings.Join(want.rest, "\n  "))
		}
	}
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\n")
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case line == "" || line[0] == '#':
		case line[0] == ' ' && (verb == "dispatch" || verb == "error"):
			if verb == "error" && len(got.rest) > 0 && strings.Contains(got.rest[0], rest) {
				rest = strings.TrimPrefix(got.rest[0], "error ")
			}
			want.rest = append(want.rest, verb+" "+rest)
		case line[0] == ' ':
			want.effects = append(want.effects, strings.TrimSpace(line))
		default:
			check()
			what, want = line, outcome{}
			got = f.do(t, verb, strings.ReplaceAll(rest, "$R", f.root))
		}
	}
	check()
	if what == "" {
		t.Error("the case holds nothing")
	}
}

func (f *fixture) do(t *testing.T, verb, rest string) outcome {
	t.Helper()
	var o outcome
	var err error
	switch name, arg, _ := strings.Cut(rest, " "); verb {
	case "call":
		ann, tool := f.annotation(t, name)
		c := Call{Tool: tool, Args: []byte(arg), Annotation: ann, Dir: f.view.Workspace}
		var r Resolution
		if r, err = f.view.Call(c); err == nil {
			for _, e := range r.Effects {
				o.effects = append(o.effects, f.show(e))
			}
			if string(r.Bytes) != arg {
				o.rest = append(o.rest, f.short("dispatch "+string(r.Bytes)))
			}
			f.sameAgain(t, c, r)
		}
	case "exec":
		var r Resolution
		if r, err = f.view.Exec([]byte(rest)); err == nil {
			for _, e := range r.Effects {
				o.effects = append(o.effects, f.show(e))
			}
			o.rest = append(o.rest, f.short("dispatch "+string(r.Bytes)))
		}
	case "named":
		var e act.Effect
		if e, err = f.view.Effect(act.Kind(name), arg); err == nil {
			o.effects = append(o.effects, f.show(e))
		}
	case "program":
		var p string
		if p, err = f.view.Program(name); err == nil {
			o.effects = append(o.effects, f.short(p))
		}
	default:
		t.Fatalf("no such line: %s %s", verb, rest)
	}
	if err != nil {
		o.rest = append(o.rest, "error "+f.short(err.Error()))
	}
	return o
}

// annotation returns the annotation of a case file, or for "server.tool" the
// shipped one, and the name of the tool.
func (f *fixture) annotation(t *testing.T, name string) (*policy.ToolAnnotation, string) {
	t.Helper()
	if ann, ok := f.anns[name]; ok {
		return ann, "s." + name
	}
	server, tool, _ := strings.Cut(name, ".")
	all, err := policy.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := all[server]; ok {
		if ta, ok := a.Tools[tool]; ok {
			return &ta, name
		}
	}
	t.Fatalf("no annotation %q", name)
	return nil, ""
}

// sameAgain resolves twice, and what was dispatched once more: an approval is
// checked by resolving again, and what a server is given must mean the same.
func (f *fixture) sameAgain(t *testing.T, c Call, r Resolution) {
	t.Helper()
	again, err := f.view.Call(c)
	if err != nil || string(again.Bytes) != string(r.Bytes) || fmt.Sprint(again.Effects) != fmt.Sprint(r.Effects) {
		t.Errorf("resolving again gives %v %s, %v", again.Effects, again.Bytes, err)
	}
	c.Args = r.Bytes
	again, err = f.view.Call(c)
	if err != nil || string(again.Bytes) != string(r.Bytes) || fmt.Sprint(again.Effects) != fmt.Sprint(r.Effects) {
		t.Errorf("resolving what is dispatched gives %v %s, %v", again.Effects, again.Bytes, err)
	}
}

func (f *fixture) short(s string) string { return strings.ReplaceAll(s, f.root, "$R") }

// show writes an effect with the facts that are not plain from its text.
func (f *fixture) show(e act.Effect) string {
	s := string(e.Kind) + " " + e.Resource.Text
	if e.Group != "" {
		s += " group=" + string(e.Group)
	}
	if e.Tree {
		s += " tree"
	}
	if _, named := e.Resource.Facts[policy.FactProgram]; e.Kind == act.Execute && !named {
		s += " by-path"
	}
	for _, k := range slices.Sorted(maps.Keys(e.Resource.Facts)) {
		switch v := e.Resource.Facts[k]; {
		case k == act.FactExists && v == false:
			s += " missing"
		case k == act.FactExists, k == act.FactRemoteURL, k == act.FactRef:
		case k == policy.FactProgram:
		case v == true:
			s += " " + k
		default:
			s += fmt.Sprintf(" %s=%v", k, v)
		}
	}
	return f.short(s)
}
