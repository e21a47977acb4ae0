package gate

import (
	"fmt"
	"strings"
	"testing"
)

// doubling is a schema that applies the last of its definitions 2^n times.
func doubling(n int) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s,"d%d":{"type":"object"}}}`, strings.Join(defs, ","), n)
}

// TestHostileSchemas: no schema of a server makes the check of arguments run
// without end or the stack overflow; recursive ones that come to an end work.
func TestHostileSchemas(t *testing.T) {
	const value = `{"a":{"a":[{"b":1}],"b":{}},"b":[[1,2],"x"]}`
	nested := strings.Repeat(`{"a":[`, 30) + `1` + strings.Repeat(`]}`, 30)
	for _, c := range []struct{ schema, args, wrong string }{
		{`{"type":"object"}`, value, ""},
		{`true`, value, ""},
		{`{"properties":{"a":{"$ref":"#"},"b":{"type":["array","object"]}}}`, value, ""},
		{`{"properties":{"a":{"items":{"$ref":"#"}},"b":{"items":{"$ref":"#"}}}}`, value, ""},
		{`{"$defs":{"v":{"anyOf":[{"type":"number"},{"type":"string"},{"items":{"$ref":"#/$defs/v"},"type":"array"},{"type":"object","additionalProperties":{"$ref":"#/$defs/v"}}]}},"$ref":"#/$defs/v"}`, value, ""},
		{`{"$defs":{"v":{"type":"object"}},"properties":{"a":{"$ref":"#/$defs/v"},"b":{"not":{"$ref":"#/$defs/v"}}}}`, value, ""},
		{`{"$defs":{"a/b~":{"type":"number"}},"properties":{"a":{"anyOf":[{"$ref":"#/$defs/a~1b%7E0"},true]}}}`, value, ""},
		{`{"properties":{"a":{"anyOf":[true]},"b":{"$ref":"#/properties/a/anyOf/0"}}}`, value, "leads nowhere"},
		{`{"$ref":"#"}`, value, "has no end"},
		{`{"allOf":[{"$ref":"#"}]}`, value, "has no end"},
		{`{"AllOf":[{"$Ref":"#"}]}`, value, "has no end"},
		{`{"properties":{"a":{"$ref":"#/properties/a"}}}`, value, "has no end"},
		{`{"if":{"$ref":"#/$defs/x"},"$defs":{"x":{"then":{"$ref":"#/$defs/y"}},"y":{"dependentSchemas":{"a":{"$ref":"#/$defs/x"}}}}}`, value, "has no end"},
		{`{"anyOf":[{"items":{"$ref":"#"}},{"properties":{"a":{"$ref":"#"}}},{"additionalProperties":{"$ref":"#"}}]}`, nested, "twice"},
		{`{"anyOf":[{"properties":{"a":{"items":{"$ref":"#"}}}},{"properties":{"a":{"prefixItems":[{"$ref":"#"}]}}}]}`, nested, "twice"},
		{`{"patternProperties":{".":{"$ref":"#"}},"properties":{"a":{"$ref":"#"}}}`, nested, "twice"},
		{doubling(40), value, "more than"},
		{`{"$dynamicRef":"#x"}`, value, "not understood"},
		{`{"properties":{"a":{"$id":"x"}}}`, value, "not understood"},
		{`{"properties":{"a":{"allOf":[{"$anchor":"x"}]}}}`, value, "not understood"},
		{`{"$ref":"#x"}`, value, "leads nowhere"},
		{`{"$ref":"#/%zz"}`, value, "leads nowhere"},
		{`{"$ref":"#/title/x","title":"t"}`, value, "leads nowhere"},
		{`{"$ref":"#/allOf/7","allOf":[true]}`, value, "leads nowhere"},
		{`{"properties":{"path":{},"b":true},"additionalProperties":false}`, `{"pth":1}`, `there is no argument "pth"; did you mean "path"?`},
		{`{"properties":{"path":{},"b":true},"additionalProperties":false}`, `{"path":1,"zzzzzz":1}`, `there is no argument "zzzzzz"; there are b, path`},
		{`{"$ref":5}`, value, "cannot unmarshal"},
		{`{"$ref":"https://example.com/s.json"}`, value, "leads nowhere"},
		{doubling(11), `{"a":"` + strings.Repeat("x", 1<<19) + `"}`, "too many to be checked"},
	} {
		s, err := schemaOf([]byte(`{"inputSchema":` + c.schema + `}`))
		tool := &Tool{schema: s}
		if err != nil {
			tool.broken = err.Error()
		}
		err = tool.check([]byte(c.args))
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%.200s: %v, want %q", c.schema, err, c.wrong)
		}
	}
}

// TestToolNames: a tool whose name could be more than a name on a terminal, or on
// a command line, is neither shown for review nor called.
func TestToolNames(t *testing.T) {
	b := newBench(t, allow)
	seen := &noted{}
	b.o.Pins = seen
	for _, name := range []string{`\u001b[2J`, `a\nb`, `$(id)`, `a b`, `n\u043ete`, strings.Repeat("x", 129), `a;b`} {
		b.decide(listRequest(`{"tools":[{"name":"` + name + `"}]}`))
	}
	if len(seen.names) > 0 {
		t.Errorf("a person would be shown %q", seen.names)
	}
}
