package strictjson

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestValues(t *testing.T) {
	rows(t, "testdata/values.txt", func(line int, texts, _ []string) {
		src := []byte(texts[0])
		var got []string
		note := func(v Value) error {
			if !bytes.Equal(src[v.Start:v.End], v.Raw) {
				t.Errorf("line %d: %d:%d is not %s", line, v.Start, v.End, v.Raw)
			}
			got = append(got, v.Pointer+"="+string(v.Raw))
			return nil
		}
		var err error
		switch texts[1] {
		case "leaves":
			err = Walk(src, note)
		case "names":
			err = Names(src, note)
		default:
			var vs []Value
			vs, err = Values(src, texts[1])
			for _, v := range vs {
				_ = note(v)
			}
		}
		if err != nil {
			got = []string{"error"}
		}
		if !slices.Equal(got, texts[2:]) {
			t.Errorf("line %d: %s in %s: %q, %v; want %q", line, texts[1], src, got, err, texts[2:])
		}
	})
}

func TestFind(t *testing.T) {
	src := []byte(`{"a":{"b":"x\ty"}}`)
	v, ok, err := Find(src, "/a/b")
	if s, terr := v.Text(); !ok || err != nil || s != "x\ty" || terr != nil {
		t.Errorf("Find = %v, %v, %v", v, ok, err)
	}
	if _, ok, err := Find(src, "/a/c"); ok || err != nil {
		t.Errorf("Find of nothing = %v, %v", ok, err)
	}
	if _, _, err := Find([]byte(`[1,2]`), "/*"); err == nil {
		t.Error("Find of two values succeeds")
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\u00e9\ud83d\ude00"`: "é😀", `"é"`: "é", `"\\"`: `\`,
		`"\"`: "!", `"a"b"`: "!", `"`: "!", `1`: "!", ``: "!", `"\u0000"`: "!", `"\ud800"`: "!", "\"\xff\"": "!", "\"\n\"": "!", ` "a"`: "!",
	} {
		got, err := Text([]byte(raw))
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("Text(%s) = %q, %v", raw, got, err)
		}
	}
}

func TestQuote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		raw, err := Quote(s)
		if err != nil {
			if !bytes.Contains([]byte(s), []byte{0}) {
				t.Fatal(err)
			}
			return
		}
		if back, err := Text(raw); back != s || err != nil || !IsCanonical(raw) {
			t.Fatalf("%q, %v", back, err)
		}
	})
	if _, err := Quote("\xff"); err == nil {
		t.Error("Quote accepts invalid UTF-8")
	}
}

func TestSplice(t *testing.T) {
	src := []byte("0123456789")
	got, err := Splice(src, []Edit{{8, 9, []byte("eight")}, {0, 1, nil}, {3, 3, []byte("-")}})
	if string(got) != "12-34567eight9" || err != nil || string(src) != "0123456789" {
		t.Errorf("Splice = %s, %v", got, err)
	}
	for _, bad := range [][]Edit{{{1, 3, nil}, {2, 4, nil}}, {{-1, 2, nil}}, {{5, 4, nil}}, {{9, 11, nil}}} {
		if _, err := Splice(src, bad); err == nil {
			t.Errorf("Splice makes %v", bad)
		}
	}
}

// Property: replacing every leaf by itself changes nothing.
func FuzzWalk(f *testing.F) {
	f.Add([]byte(`{"a": [1, "\u00e9", {"b": null}], "": {}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var edits []Edit
		err := Walk(src, func(v Value) error {
			found, err := Values(src, literal(v.Pointer))
			if err != nil || len(found) != 1 || found[0].Start != v.Start || found[0].End != v.End {
				t.Fatalf("Values(%q, %q) = %v, %v", src, v.Pointer, found, err)
			}
			edits = append(edits, Edit{v.Start, v.End, v.Raw})
			return nil
		})
		if (err == nil) != (Check(src) == nil) {
			t.Fatalf("Walk(%q) = %v", src, err)
		}
		if back, err := Splice(src, edits); err != nil || !bytes.Equal(back, src) {
			t.Fatalf("Splice of %q gives %q, %v", src, back, err)
		}
	})
}
