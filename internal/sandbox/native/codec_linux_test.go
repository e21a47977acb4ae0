package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ringfence/internal/sandbox/native/landlock"
)

func plans() *rapid.Generator[plan] {
	text := rapid.SampledFrom([]string{"", "/", "/usr/bin", "a\xff\n", strings.Repeat("x", 300)})
	texts := rapid.SliceOfN(text, 0, 4)
	number := rapid.SampledFrom([]int{-1, 0, 1, 65535, 1 << 40})
	return rapid.Custom(func(t *rapid.T) plan {
		p := plan{
			failAt: text.Draw(t, "fail"), plain: rapid.Bool().Draw(t, "plain"), argv: texts.Draw(t, "argv"), env: texts.Draw(t, "env"),
			dir: text.Draw(t, "dir"), hostname: text.Draw(t, "host"), slack: number.Draw(t, "slack"), uid: number.Draw(t, "uid"), gid: number.Draw(t, "gid"),
			terminal: rapid.Bool().Draw(t, "terminal"), files: number.Draw(t, "files"), mounts: number.Draw(t, "mounts"),
			groups: number.Draw(t, "groups"), minABI: number.Draw(t, "abi"), program: text.Draw(t, "program"), own: text.Draw(t, "own"),
			hold:     holding{on: rapid.Bool().Draw(t, "hold"), writable: texts.Draw(t, "writable"), held: texts.Draw(t, "held"), led: texts.Draw(t, "led"), home: text.Draw(t, "home"), names: rapid.Bool().Draw(t, "names"), sockets: rapid.Bool().Draw(t, "sockets"), copied: texts.Draw(t, "copied"), private: texts.Draw(t, "private"), reachable: texts.Draw(t, "reachable")},
			entering: entering{proxy: number.Draw(t, "proxy"), resolver: number.Draw(t, "resolver"), tools: number.Draw(t, "tools"), ports: rapid.SliceOfN(number, 0, 3).Draw(t, "ports"), local: []local{{text.Draw(t, "address"), number.Draw(t, "bits")}}},
		}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			p.nodes = append(p.nodes, node{
				path: text.Draw(t, "path"), kind: kind(rapid.IntRange(0, 9).Draw(t, "kind")), source: text.Draw(t, "source"), fd: number.Draw(t, "fd"),
				dir: rapid.Bool().Draw(t, "dir"), write: rapid.Bool().Draw(t, "write"), device: rapid.Bool().Draw(t, "device"),
				found: rapid.Bool().Draw(t, "found"), size: int64(number.Draw(t, "size")), mode: number.Draw(t, "mode"),
				upper: text.Draw(t, "upper"), work: text.Draw(t, "work"), layers: number.Draw(t, "layers"),
			})
			p.grants = append(p.grants, grant{text.Draw(t, "grant"), landlock.Access(rapid.Byte().Draw(t, "access")), landlock.Write})
			p.limits = append(p.limits, limit{text.Draw(t, "limit"), number.Draw(t, "resource"), int64(number.Draw(t, "value"))})
		}
		return p
	})
}

// What is written is what is read, and nothing shorter or longer is read at all.
func TestPlansTravel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plans().Draw(t, "plan")
		b, err := encode(&p)
		if err != nil {
			t.Fatal(err)
		}
		var back plan
		if err := decode(b, &back); err != nil {
			t.Fatal(err)
		}
		again, err := encode(&back)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("%+v became %+v", p, back)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if decode(b[:cut], &back) == nil || decode(append(b, 0), &back) == nil {
			t.Fatal("a plan of another length was read")
		}
	})
	// A member that no visit reaches would be lost without a word.
	for _, m := range []any{plan{}, node{}, grant{}, limit{}, holding{}, entering{}, local{}} {
		n := reflect.TypeOf(m).NumField()
		if want := map[string]int{"plan": 22, "node": 15, "grant": 3, "limit": 3, "holding": 16, "entering": 5, "local": 2}[reflect.TypeOf(m).Name()]; n != want {
			t.Errorf("%T has %d members, %d when its visit was last looked at", m, n, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode(&plan{argv: []string{"/bin/sh"}, nodes: []node{{path: "/a"}}, limits: []limit{{"cpu", 1, 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(binary.AppendVarint(nil, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []message{new(plan), new(setup), new(failure), new(ending), new(denied)} {
			if decode(b, m) != nil {
				continue
			}
			again, err := encode(m)
			if err != nil {
				t.Fatalf("%x is read and not written: %v", b, err)
			}
			if len(again) > len(b) {
				t.Errorf("%x was read as something longer: %x", b, again)
			}
		}
	})
}

func pair(t *testing.T) (*wire, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWire(os.NewFile(uintptr(fds[0]), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(fds[1]), "other")
	t.Cleanup(func() { w.close(); other.Close() })
	return w, other
}

// Descriptors arrive with their frame, in order, however many there are.
func TestDescriptorsTravel(t *testing.T) {
	w, other := pair(t)
	back, err := newWire(other)
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range 300 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	sent := make(chan error)
	go func() { sent <- w.sendPlan(&plan{argv: []string{strings.Repeat("x", 1<<20)}, files: 300}, fds) }()
	p, got, err := back.recvPlan()
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	if len(got) != 300 || p.files != 300 || len(p.argv[0]) != 1<<20 {
		t.Errorf("%d descriptors, %+v", len(got), p.files)
	}
	for _, fd := range got {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Fatalf("descriptor %d: flags %#x, %v", fd, flags, err)
		}
	}
	closeFDs(append(fds, got...))
}

func TestBadFrames(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"nothing":        {"", io.EOF},
		"half a head":    {"\x00\x00", io.ErrUnexpectedEOF},
		"no payload":     {"\x00\x00\x00\x05\x01\x00", io.ErrUnexpectedEOF},
		"too long":       {"\x00\x01\x00\x01\x01\x00", nil},
		"no descriptors": {"\x00\x00\x00\x00\x01\x02", nil},
		"too many":       {"\x00\x00\x00\x00\x01\xff", nil},
	} {
		w, other := pair(t)
		if _, err := io.WriteString(other, c.bytes); err != nil {
			t.Fatal(err)
		}
		other.Close()
		if fr, err := w.recv(maxSmall); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %+v %v, want %v", name, fr, err, c.want)
		}
	}
	w, other := pair(t)
	if _, err := io.WriteString(other, "\x00\x00\x00\x00\x03\x00"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.recvPlan(); err == nil {
		t.Error("a frame of another kind was taken for a plan")
	}
}
