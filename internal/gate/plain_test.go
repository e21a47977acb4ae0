package gate

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act/strictjson"
)

// anyJSON makes values of few names and many shapes.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.SampledFrom([]any{nil, true, false, "", "text", 0, -1, 1.5, 1e300})
	if depth == 0 {
		return leaf
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), inner, 0, 4), func(m map[string]any) any { return m }))
}

// anySchema makes schemas of keywords that are plain, and of some that are not.
func anySchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 9).Draw(t, "bool") == 0 {
			return rapid.Bool().Draw(t, "schema")
		}
		name := rapid.SampledFrom([]string{"string", "number", "integer", "boolean", "null", "object", "array"})
		m := map[string]any{}
		if rapid.IntRange(0, 3).Draw(t, "type?") > 0 {
			m["type"] = name.Draw(t, "type")
		} else if rapid.Bool().Draw(t, "types?") {
			m["type"] = rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(t, "types")
		}
		if depth == 2 {
			m["type"] = "object"
		}
		for _, word := range []string{"title", "Required", "minLength", "pattern", "Type", "enum", "const", "maxItems"} {
			if rapid.IntRange(0, 12).Draw(t, word) == 0 {
				m[word] = map[string]any{"title": "t", "Required": []any{"d"}, "minLength": 5, "pattern": "^x", "Type": "null", "enum": []any{"text"}, "const": 0, "maxItems": 1}[word]
			}
		}
		if depth == 0 {
			return m
		}
		member := rapid.SampledFrom([]string{"a", "b", "c"})
		if rapid.Bool().Draw(t, "properties?") || depth == 2 {
			m["properties"] = rapid.MapOfN(member, anySchema(depth-1), 0, 3).Draw(t, "properties")
		}
		if rapid.Bool().Draw(t, "items?") {
			m["items"] = anySchema(depth-1).Draw(t, "items")
		}
		if rapid.Bool().Draw(t, "required?") {
			m["required"] = rapid.SliceOfDistinct(member, rapid.ID).Draw(t, "required")
		}
		if rapid.Bool().Draw(t, "additional?") {
			m["additionalProperties"] = rapid.OneOf(rapid.Map(rapid.Bool(), func(b bool) any { return b }), anySchema(0)).Draw(t, "additional")
		}
		return m
	})
}

// TestPlainSchemas: what a plain schema passes, the validator passes; and some pass.
func TestPlainSchemas(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		def, err := json.Marshal(map[string]any{"inputSchema": anySchema(2).Draw(t, "schema")})
		if err != nil {
			t.Fatal(err)
		}
		s, err := schemaOf(def)
		if err != nil || s.plain == nil {
			return
		}
		for range 8 {
			args, err := json.Marshal(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), anyJSON(2), 0, 3).Draw(t, "arguments"))
			if err != nil {
				t.Fatal(err)
			}
			members, err := strictjson.Members(args, strictjson.Limits{})
			if err != nil || !s.plain.holds(args, members) {
				continue
			}
			passed++
			var v map[string]any
			if err := json.Unmarshal(args, &v); err != nil {
				t.Fatal(err)
			}
			if err := s.resolved.Validate(v); err != nil {
				t.Fatalf("%s passes %s: %v", def, args, err)
			}
		}
	})
	if passed < 10 {
		t.Errorf("%d arguments passed", passed)
	}
}

// TestPlain: which schemas are plain, and what they pass.
func TestPlain(t *testing.T) {
	for _, text := range []string{
		`true`, `{}`, `{"type":"string"}`, `{"type":"object","additionalProperties":{}}`, `{"type":"object","required":[1]}`,
		`{"type":"object","required":"a"}`, `{"type":"object","properties":[]}`, `{"type":"object","Required":["a"]}`,
	} {
		var node any
		if err := json.Unmarshal([]byte(text), &node); err != nil || plainOf(node) != nil {
			t.Errorf("%s is plain, %v", text, err)
		}
	}
	s, err := schemaOf([]byte(`{"inputSchema":{"type":"object","properties":{"path":{"type":"string","title":"P"},"head":{"type":["integer","null"]},
		"list":{"type":"array","items":{"type":"string"}},"yes":{"type":"boolean"},"o":{"type":"object"},"any":true,"short":{"minLength":2},
		"deep":{"items":{"items":{}}},"none":{"type":[]},"odd":{"items":{"items":true}}},"required":["path"],"additionalProperties":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]bool{
		`{"path":"/w","head":3,"list":["a","b"],"yes":true}`: true, `{"path":"/w","head":null,"list":[],"o":{"a":[{}]},"any":[1]}`: true,
		`{"head":3}`: false, `{"path":1}`: false, `{"path":"","head":1.0}`: false, `{"path":"","list":["a",1]}`: false,
		`{"path":"","list":[["a"]]}`: false, `{"path":"","other":1}`: false, `{"path":"","short":"abc"}`: false,
		`{"path":"","deep":[]}`: false, `{"path":"","none":1}`: false, `{"path":"","yes":"true"}`: false,
	} {
		members, err := strictjson.Members([]byte(args), strictjson.Limits{})
		if got := s.plain.holds([]byte(args), members); err != nil || got != want {
			t.Errorf("%s passes: %v, %v", args, got, err)
		}
	}
	if _, ok := typesOf(map[string]any{"type": "widget"}, true); ok {
		t.Error("a type that there is none of is known")
	}
	if (*plainSchema)(nil).holds([]byte(`{}`), nil) {
		t.Error("what there is none of passes")
	}
}
