//go:build linux

package filter

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A vector is one line of testdata/verdicts.txt.
type vector struct {
	at      string // the line, for messages
	options Options
	name    string
	nr      int64 // where the name is a number, else -1
	args    [6]uint64
	try     bool // on the kernel
	fate    string
}

// number returns the number of the call on a, if it has it.
func (v vector) number(a arch) (uint32, bool) {
	if v.nr >= 0 {
		return uint32(v.nr), true
	}
	for _, n := range numbers {
		if n.name == v.name {
			return uint32(a.number(n)), a.number(n) != absent
		}
	}
	return 0, false
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	var o Options
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words, ok := strings.CutPrefix(line, "=="); ok {
			o = parseOptions(t, words)
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		all = append(all, parseVector(t, line, o))
	}
	return all
}

func parseVector(t *testing.T, line string, o Options) vector {
	t.Helper()
	left, fate, ok := strings.Cut(line, "=>")
	words := strings.Fields(left)
	if !ok || len(words) == 0 || len(words) > 7 {
		t.Fatalf("not a vector: %q", line)
	}
	v := vector{at: strings.TrimSpace(line), options: o, nr: -1, try: true, fate: strings.TrimSpace(fate)}
	if name, ok := strings.CutPrefix(words[0], "!"); ok {
		v.try, words[0] = false, name
	}
	v.name = words[0]
	if n, err := strconv.ParseUint(v.name, 0, 32); err == nil {
		v.nr = int64(n)
	} else if !slices.ContainsFunc(numbers, func(n number) bool { return n.name == v.name }) {
		t.Fatalf("no call %q", v.name)
	}
	for i, w := range words[1:] {
		n, err := strconv.ParseUint(w, 0, 64)
		if err != nil {
			t.Fatalf("%s: %v", v.at, err)
		}
		v.args[i] = n
	}
	return v
}

func parseOptions(t *testing.T, words string) Options {
	t.Helper()
	var o Options
	by := map[string]*bool{
		"agent": &o.Agent, "namespaces": &o.Namespaces, "unix": &o.Unix, "inet": &o.Inet, "netlink": &o.RouteNetlink,
		"hold": &o.Hold, "sockets": &o.Sockets, "init": &o.Init, "trace": &o.Trace,
	}
	for w := range strings.FieldsSeq(words) {
		if w == "-" {
			continue
		}
		if by[w] == nil {
			t.Fatalf("no option %q", w)
		}
		*by[w] = true
	}
	return o
}

// TestVerdicts runs the programs on testdata/verdicts.txt.
func TestVerdicts(t *testing.T) {
	for name, a := range arches {
		for _, v := range readVectors(t) {
			nr, ok := v.number(a)
			if !ok {
				continue
			}
			program, err := build(a, v.options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interpret(program, call{nr: nr, arch: a.audit, args: v.args})
			want := v.fate
			if want == "EFAULT" {
				want = "allowed" // the filter's part of it
			}
			if err != nil || got.fate() != want {
				t.Errorf("%s %+v: %s: got %s (%v)", name, v.options, v.at, got.fate(), err)
			}
		}
	}
}

// TestOtherTables: numbers of another architecture, and of x32, end the process
// whatever they are.
func TestOtherTables(t *testing.T) {
	for name, a := range arches {
		for _, o := range everyOptions() {
			program, err := build(a, o)
			if err != nil {
				t.Fatal(err)
			}
			calls := []call{
				{nr: 1, arch: 0x40000003},  // AUDIT_ARCH_I386: int 0x80
				{nr: 20, arch: 0x40000028}, // AUDIT_ARCH_ARM
				{nr: 1}, {nr: 1, arch: amd64.audit ^ arm64.audit ^ a.audit},
			}
			if a.x32 {
				calls = append(calls, call{nr: 0x40000001, arch: a.audit}, call{nr: 0x40000200, arch: a.audit},
					call{nr: 0xffffffff, arch: a.audit})
			}
			for _, c := range calls {
				if got, err := interpret(program, c); err != nil || got != kill {
					t.Errorf("%s %+v: call %#x of %#x: got %#x (%v), want it killed", name, o, c.nr, c.arch, got, err)
				}
			}
		}
	}
}
