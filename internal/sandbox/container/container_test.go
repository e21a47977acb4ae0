package container

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/sandbox"
)

func TestOptions(t *testing.T) {
	parsers := map[string]func(string) (any, error){
		"memory":  func(s string) (any, error) { return ParseMemory(s) },
		"cpus":    func(s string) (any, error) { return ParseCPUs(s) },
		"timeout": func(s string) (any, error) { d, err := ParseTimeout(s); return int64(d), err },
		"runtime": func(s string) (any, error) { return ParseRuntime(s) },
		"image":   func(s string) (any, error) { return ParseImage(s) },
		"host":    func(s string) (any, error) { return ParseHost(s) },
	}
	f, err := os.Open("testdata/options.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		what, rest, _ := strings.Cut(sc.Text(), " ")
		if what == "#" || parsers[what] == nil {
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatal(sc.Text())
		}
		text, _ := strconv.Unquote(quoted)
		want := strings.TrimSpace(rest[len(quoted):])
		got, err := parsers[what](text)
		if message, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s %s: %v, %v, want …%s…", what, quoted, got, err, message)
			}
		} else if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s %s: %v, %v, want %s", what, quoted, got, err, want)
		}
	}
	for want, o := range map[string]Options{
		"":                         {},
		"none of auto":             {Runtime: "x"},
		"is no name":               {Image: "a b"},
		"not an absolute path":     {Socket: "docker.sock"},
		"bytes of memory":          {Memory: 1},
		"billionths":               {CPUs: -1},
		"a time limit of":          {Timeout: time.Millisecond},
		"home \"x\" is not an abs": {Home: "x"},
	} {
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// Whatever parses is within bounds.
func FuzzParse(f *testing.F) {
	f.Add("256m")
	f.Add("1.5")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseMemory(text); err == nil && (n < minMemory || n > 1<<50) {
			t.Errorf("memory %q is %d", text, n)
		}
		if n, err := ParseCPUs(text); err == nil && (n < minCPUs || n > maxCPUs) {
			t.Errorf("cpus %q is %d", text, n)
		}
		if d, err := ParseTimeout(text); err == nil && (d < time.Second || d > maxTimeout) {
			t.Errorf("timeout %q is %v", text, d)
		}
	})
}

// The operator's limits cap short boxes, and stand in for what is not set in others.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		s      sandbox.Spec
		o      Options
		memory int64
		wall   time.Duration
		pids   int64
	}{
		{sandbox.Spec{}, Options{}, 256 << 20, 30 * time.Second, 64},
		{sandbox.Spec{Limits: sandbox.Limits{Memory: 1 << 30, Wall: time.Hour}}, Options{}, 256 << 20, 30 * time.Second, 64},
		{sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20, Wall: time.Second}}, Options{}, 64 << 20, time.Second, 64},
		{sandbox.Spec{Limits: sandbox.Limits{Memory: -1, Wall: -1, Processes: -1}}, Options{Memory: 1 << 30, Timeout: time.Minute}, 1 << 30, time.Minute, 0},
		{sandbox.Spec{Profile: sandbox.ProfileAgent}, Options{}, 256 << 20, sandbox.Unlimited, boxPids},
		{sandbox.Spec{Profile: sandbox.ProfileAgent, Limits: sandbox.Limits{Memory: -1, Processes: 9}}, Options{}, 0, sandbox.Unlimited, 9},
		{sandbox.Spec{Profile: sandbox.ProfileServer}, Options{}, 1 << 30, sandbox.Unlimited, boxPids},
		{sandbox.Spec{Profile: sandbox.ProfileCode}, Options{}, 256 << 20, 30 * time.Second, boxPids},
	} {
		p := &plan{}
		p.bounds(c.s, c.o)
		if p.memory != c.memory || p.wall != c.wall || p.pids != c.pids || p.cpus != DefaultCPUs {
			t.Errorf("%+v, %+v: memory %d, wall %v, pids %d", c.s, c.o, p.memory, p.wall, p.pids)
		}
	}
}

// frame is what an engine sends for a write to a stream.
func frame(stream byte, data []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{stream, 0, 0, 0}, uint32(len(data)))
	return append(head, data...)
}

func TestDemultiplex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in, out, errs bytes.Buffer
		var wantOut, wantErrs []byte
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
			if rapid.Bool().Draw(t, "out") {
				wantOut = append(wantOut, data...)
				in.Write(frame(streamOut, data))
			} else {
				wantErrs = append(wantErrs, data...)
				in.Write(frame(streamErr, data))
			}
		}
		whole := bytes.Clone(in.Bytes())
		if err := demultiplex(&in, &out, &errs); err != nil || !bytes.Equal(out.Bytes(), wantOut) || !bytes.Equal(errs.Bytes(), wantErrs) {
			t.Fatalf("%q, %q, %v", out.Bytes(), errs.Bytes(), err)
		}
		if len(whole) > 0 {
			cut := whole[:len(whole)-1]
			if err := demultiplex(bytes.NewReader(cut), io.Discard, io.Discard); len(whole) > streamHead && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("cut: %v", err)
			}
		}
	})
}

func FuzzDemultiplex(f *testing.F) {
	f.Add(frame(streamOut, []byte("x")))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		var out, errs bytes.Buffer
		heads := len(in) / streamHead * streamHead
		if err := demultiplex(bytes.NewReader(in), &out, &errs); err == nil && out.Len()+errs.Len() > len(in) || out.Len()+errs.Len() > 0 && heads == 0 {
			t.Errorf("%d bytes of %d", out.Len()+errs.Len(), len(in))
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 / /a\\040b rw,noatime shared:1 - ext4 /dev/root ro,errors=continue\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseMountinfo(strings.NewReader(text))
		if err == nil && len(list) > strings.Count(text, " - ") {
			t.Errorf("%d mounts of %q", len(list), text)
		}
	})
}

func TestMountinfo(t *testing.T) {
	for text, want := range map[string]string{
		"36 35 98:0 / /a\\040b rw,noatime shared:1 - ext4 /dev/root rw\n":               "/a b ext4 rw,noatime",
		"1 0 0:1 / / ro - overlay overlay rw,lowerdir=/x\n2 1 0:2 / /t rw - tmpfs t ro": "/ overlay ro; /t tmpfs rw,ro",
		"":                                     "",
		"36 35 98:0 / /a rw ext4 /dev/root rw": "!",
		"36 35 98:0 / /a - ext4 /dev/root rw":  "!",
		"36 35 98:0 / /a\\04 rw - ext4 /dev/root rw":     "!",
		"36 35 98:0 / /a\\999 rw - ext4 /dev/root rw":    "!",
		"36 35 98:0 / /a rw - ext4 /dev/root":            "!",
		strings.Repeat("x", maxMountLine+1) + " - a b c": "!",
	} {
		list, err := parseMountinfo(strings.NewReader(text))
		var got []string
		for _, m := range list {
			got = append(got, m.target+" "+m.fstype+" "+strings.Join(m.options, ","))
		}
		if s := strings.Join(got, "; "); (want == "!") != (err != nil) || err == nil && s != want {
			t.Errorf("%.80q: %s, %v, want %s", text, s, err, want)
		}
	}
}

// What belongs to a living process, or to one of which that cannot be told, is not
// taken from it.
func TestIsDead(t *testing.T) {
	me, err := identify()
	if err != nil {
		t.Fatal(err)
	}
	mine := map[string]string{labelPID: strconv.Itoa(me.pid), labelBoot: me.boot, labelStart: me.start, labelSpace: me.space}
	for _, c := range []struct {
		change map[string]string
		dead   bool
	}{
		{nil, false},
		{map[string]string{labelBoot: "another"}, true},
		{map[string]string{labelPID: "x"}, false},
		{map[string]string{labelPID: "-1"}, false},
		{map[string]string{labelStart: ""}, false},
		{map[string]string{labelSpace: "pid:[1]", labelPID: "999999999"}, false},
		{map[string]string{labelPID: "999999999"}, true},
	} {
		labels := maps.Clone(mine)
		maps.Copy(labels, c.change)
		if isDead(labels, me) != c.dead {
			t.Errorf("with %v: dead is %v", c.change, !c.dead)
		}
	}
}
