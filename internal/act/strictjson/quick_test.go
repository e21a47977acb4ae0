package strictjson

import (
	"reflect"
	"testing"
)

// Property: what is read plainly, the decoder reads too, with the same events, members
// and limits.
func FuzzPlainly(f *testing.F) {
	for _, name := range []string{"testdata/check.txt", "testdata/canonical.txt", "testdata/members.txt"} {
		rows(f, name, func(_ int, texts, _ []string) { f.Add([]byte(texts[0]), 3) })
	}
	f.Add(entry, 4)
	f.Add([]byte(`[{"a":-0.5,"b":[[],{}]},{"a":"\n"}]`), 3)
	f.Fuzz(func(t *testing.T, src []byte, depth int) {
		l := Limits{Depth: depth, Size: 1 << 10}.orDefault()
		list := func(scan func([]byte, Limits, func(event) error) error) (all []event, err error) {
			err = scan(src, l, func(ev event) error {
				if ev.raw != nil {
					ev.raw = []byte(string(ev.raw))
				}
				all = append(all, ev)
				return nil
			})
			return all, err
		}
		var ok bool
		ours, err := list(func(b []byte, l Limits, see func(event) error) (err error) {
			ok, err = plainly(b, l, see)
			return err
		})
		if !ok && ours == nil {
			return
		}
		if err := checkAny(src, l); err != nil || !ok {
			t.Fatalf("%q passes, and %v", src, err)
		}
		theirs, terr := list(scanAny)
		if err != nil || terr != nil || !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("%q: %v, %v\n%+v\n%+v", src, err, terr, ours, theirs)
		}
		got, ok := plainMembers(src, l)
		if want, err := members(src, false); ok != (err == nil) || ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v, not %+v, %v", src, got, want, err)
		}
	})
}

// TestPlain: the texts that this is for are read without memory.
func TestPlain(t *testing.T) {
	for _, text := range []string{string(entry), `{"path":"/w/ü","content":"a\n\"b\"","n":[1,-2.5,true,null]}`} {
		ok := false
		if n := testing.AllocsPerRun(100, func() { ok, _ = plainly([]byte(text), Limits{}.orDefault(), nil) }); n > 1 || !ok {
			t.Errorf("%s: %v allocations, %v", text, n, ok)
		}
	}
}

// FuzzPlainCanonical: what is written in one pass is what the decoder's way gives.
func FuzzPlainCanonical(f *testing.F) {
	for _, name := range []string{"testdata/check.txt", "testdata/canonical.txt", "testdata/members.txt"} {
		rows(f, name, func(_ int, texts, _ []string) { f.Add([]byte(texts[0])) })
	}
	f.Add(entry)
	f.Add([]byte(` { "b" : [ {"z":1,"\u0061\n":2,"\u20ac":"\u003c\/\u0022","\ud83d\ude00":3} , 5 ] , "a" : {} } `))
	f.Fuzz(func(t *testing.T, src []byte) {
		got, ok := plainCanonical(src)
		want, err := canonicalAny(src, exact)
		if is := err == nil && string(src) == string(want); is != IsCanonical(src) {
			t.Fatalf("%q: canonical: %v, not %v", src, !is, is)
		}
		if ok && (err != nil || string(got) != string(want)) {
			t.Fatalf("%q: %q, not %q, %v", src, got, want, err)
		}
	})
}

// TestPlainCanonical: what an encoder writes is not left to the decoder.
func TestPlainCanonical(t *testing.T) {
	for _, text := range []string{string(entry), `{"verb":"call","tool":"a.b","args":"{\"x\":\u003c1}","effects":[{"kind":"read","resource":{"type":"Path","text":"/w/ü","facts":{"exists":true}}}],"size":-12}`} {
		got, ok := plainCanonical([]byte(text))
		want, err := canonicalAny([]byte(text), exact)
		if !ok || err != nil || string(got) != string(want) {
			t.Errorf("%s: %s, %v; want %s, %v", text, got, ok, want, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = plainCanonical([]byte(text)) }); n > 2 {
			t.Errorf("%v allocations", n)
		}
	}
}
