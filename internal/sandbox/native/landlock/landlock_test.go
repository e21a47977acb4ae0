package landlock

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	text, err := os.ReadFile("testdata/plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	var last []string
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		what, want, ok := strings.Cut(line, " => ")
		abi, err := strconv.Atoi(strings.Fields(what)[0])
		if !ok || err != nil {
			t.Fatalf("line %d: %q", i+1, line)
		}
		r := Rules{MinABI: 1}
		for _, w := range strings.Fields(what)[1:] {
			change(t, &r, w)
		}
		h, err := r.Plan(abi)
		if text, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("line %d: %v, want %s", i+1, err, text)
			}
			old := strings.Contains(text, "lacks") || strings.Contains(text, "limited with")
			if errors.Is(err, ErrTooOld) != old {
				t.Errorf("line %d: ErrTooOld is %v", i+1, !old)
			}
			continue
		}
		if got := h.Names(); err != nil || !slices.Equal(sorted(got), sorted(expand(want, last, abi))) {
			t.Errorf("line %d: %v %v", i+1, err, got)
		}
		last = h.Names()
	}
}

// expand returns the rights that want stands for.
func expand(want string, last []string, abi int) []string {
	if minus, ok := strings.CutPrefix(want, "all"); ok {
		var names []string
		for _, r := range Rights(abi) {
			if r.Name != strings.TrimPrefix(minus, "-") {
				names = append(names, r.Name)
			}
		}
		return names
	}
	if more, ok := strings.CutPrefix(want, ".."); ok {
		return append(slices.Clone(last), strings.Fields(strings.TrimPrefix(more, "+"))...)
	}
	return strings.Fields(want)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// change applies one word of a case to r.
func change(t *testing.T, r *Rules, word string) {
	t.Helper()
	k, v, _ := strings.Cut(word, "=")
	n, numErr := strconv.Atoi(v)
	switch k {
	case "min":
		r.MinABI = n
	case "bind-tcp":
		r.BindTCP = append(r.BindTCP, uint16(n))
	case "connect-tcp":
		r.ConnectTCP = append(r.ConnectTCP, uint16(n))
	case "bind-udp":
		r.BindUDP = append(r.BindUDP, uint16(n))
	case "send-udp":
		r.SendUDP = append(r.SendUDP, uint16(n))
	case "any-port":
		r.AnyPort, numErr = true, nil
	case "any-socket":
		r.AnySocket, numErr = true, nil
	case "any-signal":
		r.AnySignal, numErr = true, nil
	case "grant":
		access, name, _ := strings.Cut(v, ":")
		p := Path{Name: strings.ReplaceAll(name, `\0`, "\x00"), Access: parseAccess(t, access)}
		numErr = nil
		if fd, ok := strings.CutPrefix(name, "fd"); ok {
			p.Name = ""
			p.FD, numErr = strconv.Atoi(fd)
		}
		r.Paths = append(r.Paths, p)
	default:
		t.Fatalf("no change %q", word)
	}
	if numErr != nil {
		t.Fatalf("%q: %v", word, numErr)
	}
}

func parseAccess(t *testing.T, s string) Access {
	t.Helper()
	var a Access
	for w := range strings.SplitSeq(s, "+") {
		switch w {
		case "":
		case "bad":
			a |= 0x80
		default:
			bit := Access(1)
			for ; bit != 0 && bit.String() != w; bit <<= 1 {
			}
			if bit == 0 {
				t.Fatalf("no access %q", w)
			}
			a |= bit
		}
	}
	return a
}

// L1, L2, L4: a newer kernel never holds less, what is granted is part of what is
// handled, and device nodes are never granted.
func TestGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{
			MinABI: 1, AnyPort: rapid.Bool().Draw(t, "ports"),
			AnySocket: rapid.Bool().Draw(t, "sockets"), AnySignal: rapid.Bool().Draw(t, "signals"),
		}
		abi := rapid.IntRange(1, NewestABI-1).Draw(t, "abi")
		old, err1 := r.Plan(abi)
		newer, err2 := r.Plan(abi + 1)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, name := range old.Names() {
			if !newer.Has(name) {
				t.Fatalf("ABI %d holds %s, ABI %d does not", abi, name, abi+1)
			}
		}
		a := Access(rapid.Uint8Range(1, uint8(allAccess)).Draw(t, "access"))
		dir, file := old.grants(a, true), old.grants(a, false)
		if dir&^old.fs != 0 || file&^dir != 0 || file&^onFiles != 0 || dir&(fsMakeChar|fsMakeBlock) != 0 {
			t.Fatalf("%s on ABI %d: %#x on a directory, %#x on a file", a, abi, dir, file)
		}
		if a&Write == 0 && dir&^(fsReadFile|fsReadDir|fsExecute|fsIoctlDev|fsResolveUnix) != 0 {
			t.Fatalf("%s changes: %#x", a, dir)
		}
	})
}
