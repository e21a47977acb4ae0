package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	rows(t, "testdata/canonical.txt", func(line int, texts, words []string) {
		src, want := []byte(texts[0]), texts[1]
		got, err := Canonical(src)
		if len(words) == 0 {
			if string(got) != want || err != nil || !IsCanonical(got) {
				t.Errorf("line %d: Canonical(%s) = %s, %v; want %s", line, src, got, err, want)
			}
			return
		}
		if !errors.Is(err, reasons[words[0]]) || IsCanonical([]byte(want)) && want != "0" && exact(src) {
			t.Errorf("line %d: Canonical(%s) = %s, %v; want %s", line, src, got, err, words[0])
		}
		rounded, err := CanonicalRounded(src)
		if string(rounded) != want || (want == "") != errors.Is(err, ErrNumber) {
			t.Errorf("line %d: CanonicalRounded(%s) = %s, %v; want %s", line, src, rounded, err, want)
		}
	})
}

func TestCanonicalNumbers(t *testing.T) {
	table, err := os.ReadFile("testdata/numbers.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		hex, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		if hex == "#" {
			continue
		}
		bits, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f := math.Float64frombits(bits)
		long := strconv.FormatFloat(f, 'e', 17, 64)
		if got, err := CanonicalRounded([]byte(long)); string(got) != want {
			t.Errorf("CanonicalRounded(%s) = %s, %v; want %s", long, got, err, want)
		}
		got, err := Canonical([]byte(want))
		if small := math.Abs(f) <= maxExact; small != (err == nil) || small && string(got) != want || small != IsCanonical([]byte(want)) {
			t.Errorf("Canonical(%s) = %s, %v", want, got, err)
		}
	}
}

// Property: names sort as ECMAScript sorts them, and IsCanonical agrees.
func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Map(rapid.MapOf(rapid.String(), rapid.Float64Range(-1e15, 1e15)), func(m map[string]float64) any { return m }).Draw(t, "v")
		src, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		once, err := Canonical(src)
		if errors.Is(err, ErrNUL) || errors.Is(err, ErrNumber) {
			return
		}
		if err != nil {
			t.Fatalf("Canonical(%s): %v", src, err)
		}
		if twice, err := Canonical(once); !bytes.Equal(once, twice) {
			t.Fatalf("Canonical(%s) = %s, %v", once, twice, err)
		}
		if !IsCanonical(once) || !bytes.Equal(src, once) && IsCanonical(src) {
			t.Fatalf("IsCanonical: %s of %s", once, src)
		}
	})
}

func TestIsCanonicalAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { IsCanonical(entry) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var entry = []byte(`{"args":"sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU","effects":[{"kind":"read","resource":{"facts":{"exists":true},"text":"/w/src/main.go","type":"Path"}}],"principal":"default/agent","rules":["c12"],"seq":481,"session":"01JABCDEF0123456789","time":"2026-11-30T12:00:00.123456Z","tool":"filesystem.read_file","type":"decision","verdict":"allow"}`)

func BenchmarkIsCanonical(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(entry)))
	for b.Loop() {
		if !IsCanonical(entry) {
			b.Fatal("not canonical")
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	b.SetBytes(int64(len(entry)))
	for b.Loop() {
		if _, err := Canonical(entry); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(entry)))
	for b.Loop() {
		if err := Check(entry); err != nil {
			b.Fatal(err)
		}
	}
}
