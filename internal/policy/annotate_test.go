package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseAnnotation(t *testing.T) {
	for _, c := range readCases(t, "testdata/annotations.txt") {
		t.Run(c.name, func(t *testing.T) {
			a, err := ParseAnnotation("f.json", []byte(c.text))
			if c.want == "ok" {
				if err != nil || a == nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestShipped(t *testing.T) {
	all, err := Shipped()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for name, a := range all {
		if a.Name != name || len(a.Tools) == 0 {
			t.Errorf("%s: %d tools", name, len(a.Tools))
		}
	}
	_, err = parseAnnotations(map[string][]byte{"annotations/y.json": []byte(`{"name":"x","tools":{}}`)})
	if err == nil || err.Error() != `annotations/y.json: its name is "x", want "y" as the file is called` {
		t.Error(err)
	}
}

// TestDefinitionHash is R6: every member of a definition counts, and nothing else.
func TestDefinitionHash(t *testing.T) {
	const def = `{"name":"t","title":"T","description":"d","inputSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},
 "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"icons":[{"src":"x"}],"execution":{"taskSupport":"never"},"_meta":{"k":1}}`
	base, err := DefinitionHash([]byte(def))
	if err != nil || len(base) != 64 {
		t.Fatal(base, err)
	}
	same := strings.Replace(def, `"name":"t","title":"T"`, `"title":"T", "name" : "\u0074"`, 1)
	if h, err := DefinitionHash([]byte(same)); h != base || err != nil {
		t.Errorf("another spelling: %s %v, want %s", h, err, base)
	}
	seen := map[string]string{base: "the definition itself"}
	for _, edit := range []string{
		`"t"|"u"`, `"T"|"U"`, `"d"|"e"`, `"string"|"number"`, `["a"]|[]`, `"outputSchema"|"outputSchem"`, `true|false`, `"x"|"y"`, `never|always`, `"k":1|"k":2`,
	} {
		from, to, _ := strings.Cut(edit, "|")
		h, err := DefinitionHash([]byte(strings.Replace(def, from, to, 1)))
		if err != nil || seen[h] != "" {
			t.Errorf("%s: %v, same hash as %s", edit, err, seen[h])
		}
		seen[h] = edit
	}
	for _, bad := range []string{``, `[]`, `{"a":1,"a":2}`, `{"a":9007199254740993}`} {
		if h, err := DefinitionHash([]byte(bad)); err == nil {
			t.Errorf("%s has the hash %s", bad, h)
		}
	}
	const small = `{"name":"t"}`
	if h, _ := DefinitionHash([]byte(small)); h != hexHash([]byte("tooldef/v1\x00"+small)) {
		t.Error("the hash is not as documented")
	}
}

func FuzzParseAnnotation(f *testing.F) {
	f.Add([]byte(`{"name":"x","tools":{"t":{"args":{"/a":{"role":"path","effects":["read"]}}}}}`))
	f.Add([]byte(`{"name":"x","tools":{"t":{"args":{},"effects":[{"kind":"fetch","on":"https://a.org/{/x}"}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAnnotation("f", data)
		if (a == nil) == (err == nil) {
			t.Fatal(fmt.Sprint(a, err))
		}
	})
}
