package policy

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestCedar compares the Cedar and the English of clauses with a golden file.
// Its blocks: "== name" or "== name (lower)", "+ {clause}" lines, then what comes
// out.
func TestCedar(t *testing.T) {
	const file = "testdata/cedar.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n== ")
	out := head
	for part := range strings.SplitSeq(rest, "\n== ") {
		lines := strings.Split(part, "\n")
		out += "\n== " + lines[0] + "\n"
		var clauses []Clause
		for _, line := range lines[1:] {
			text, ok := strings.CutPrefix(line, "+ ")
			if !ok {
				continue
			}
			out += line + "\n"
			var c Clause
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			clauses = append(clauses, c)
		}
		for _, c := range clauses {
			out += "# " + English(c) + "\n"
		}
		granting := !strings.HasSuffix(lines[0], "(lower)")
		text, err := Cedar(clauses, granting)
		if err != nil {
			out += "error: " + err.Error() + "\n"
			continue
		}
		out += string(text)
		layer := Layer{Text: text}
		if !granting {
			layer.Name = "user"
		}
		if _, err := Load([]Layer{layer}, Binding{Workspace: "/w", Home: "/home/u"}); err != nil {
			t.Errorf("%s: %v", lines[0], err)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out != string(data) && !*update {
		t.Errorf("%s is not what comes out; look at what differs with -update", file)
	}
}

func TestValues(t *testing.T) {
	for _, v := range []any{int(3), int64(3), float64(3)} {
		if got, err := valueOf(v); err != nil || got.String() != "3" {
			t.Errorf("%T: %v %v", v, got, err)
		}
	}
	for _, v := range []any{3.5, 1e300, []string{"x"}} {
		if got, err := valueOf(v); err == nil {
			t.Errorf("%v: %v", v, got)
		}
	}
}
