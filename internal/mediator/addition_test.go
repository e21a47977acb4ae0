package mediator

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAddServer(t *testing.T) {
	list, err := AddServer(nil, "one", []byte(`{"command":"a","args":["x"]}`), false)
	if err != nil {
		t.Fatal(err)
	}
	const first = "{\n  \"mcpServers\": {\n    \"one\": {\n      \"command\": \"a\",\n      \"args\": [\n        \"x\"\n      ]\n    }\n  }\n}\n"
	if string(list) != first {
		t.Errorf("got\n%swant\n%s", list, first)
	}
	if _, err := AddServer(list, "one", []byte(`{}`), false); !errors.Is(err, ErrListed) {
		t.Errorf("a second one of that name: %v", err)
	}
	other, err := AddServer(list, "one", []byte(`{"command":"b"}`), true)
	if err != nil || strings.Contains(string(other), `"a"`) || !strings.Contains(string(other), `"b"`) {
		t.Errorf("in its place: %s %v", other, err)
	}
	for src, want := range map[string]string{
		`{`: "1:2: ", `[]`: "must be an object", `{"servers":{}}`: "is missing", `{"mcpServers":[]}`: "must be an object",
	} {
		if _, err := AddServer([]byte(src), "one", []byte(`{}`), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
	if _, err := AddServer(nil, "a b", []byte(`{}`), false); err == nil {
		t.Error("a name that no server can have was added")
	}
}

// TestAddServerKeeps: what a list had it has afterwards, in its order, and the new server
// at the end.
func TestAddServerKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}[a-z0-9]`), 1, 6, rapid.ID).Draw(t, "names")
		var list []byte
		for _, n := range names {
			var err error
			if list, err = AddServer(list, n, []byte(`{"command":"run-`+n+`"}`), rapid.Bool().Draw(t, "replace")); err != nil {
				t.Fatal(err)
			}
		}
		servers, warnings, err := ParseServers(list, nil)
		if err != nil || len(warnings) > 0 || len(servers) != len(names) {
			t.Fatalf("%s: %d servers, %v %v", list, len(servers), warnings, err)
		}
		for i, s := range servers {
			if s.Name != names[i] || s.Command != "run-"+names[i] {
				t.Errorf("server %d is %s, %s", i, s.Name, s.Command)
			}
		}
	})
}
