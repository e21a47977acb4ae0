package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidate(t *testing.T) {
	b, err := os.ReadFile("testdata/validate.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		changes, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("line %d: no =>", i+1)
		}
		s := Spec{Argv: []string{"/bin/true"}}
		var can []Ability
		for c := range strings.FieldsSeq(changes) {
			if c == "overlays" {
				can = append(can, Overlays)
				continue
			}
			if c == "copies" {
				can = append(can, Copies)
				continue
			}
			if c == "entrances" {
				can = append(can, Entrances)
				continue
			}
			change(t, &s, c)
		}
		err := s.Validate(can...)
		if want == "ok" && err != nil || want != "ok" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("line %d: %v, want %s", i+1, err, want)
		}
	}
}

func change(t *testing.T, s *Spec, c string) {
	t.Helper()
	k, v, _ := strings.Cut(c, "=")
	v = strings.ReplaceAll(v, `\0`, "\x00")
	if what, times, ok := strings.Cut(v, "+"); ok {
		n, err := strconv.Atoi(times)
		if err != nil {
			t.Fatal(err)
		}
		v = what[:len(what)-1] + strings.Repeat(what[len(what)-1:], n)
	}
	list := strings.Split(v, ",")
	if v == "" {
		list = nil
	}
	switch k {
	case "argv":
		s.Argv = list
	case "env":
		s.Env = list
	case "dir":
		s.Dir = v
	case "workspace":
		p, m, _ := strings.Cut(v, ":")
		s.Workspace = Workspace{Path: p, Mode: Mode(m)}
	case "layers":
		s.Workspace.Upper, s.Workspace.Work, _ = strings.Cut(v, ":")
	case "copied":
		s.Workspace.Copied = v
	case "readonly":
		s.ReadOnly = list
	case "readwrite":
		s.ReadWrite = list
	case "held":
		s.Held = list
	case "denied":
		s.Denied = list
	case "network":
		s.Network = Network(v)
	case "egress":
		s.Egress = v
	case "ways", "ports": // proxy, resolver and ports
		for i, p := range list {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case k == "ways" && i == 0:
				s.Ways.Proxy = uint16(n)
			case k == "ways":
				s.Ways.Resolver = uint16(n)
			default:
				s.Ways.Ports = append(s.Ways.Ports, uint16(n))
			}
		}
	case "local":
		for _, p := range list {
			s.Ways.Local = append(s.Ways.Local, netip.MustParsePrefix(p))
		}
	case "placed":
		for _, p := range list {
			path, file, _ := strings.Cut(p, ":")
			s.Placed = append(s.Placed, Placing{Path: path, File: file})
		}
	case "profile":
		s.Profile = Profile(v)
	case "wall", "memory":
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		if k == "wall" {
			s.Limits.Wall = time.Duration(n)
		} else {
			s.Limits.Memory = int64(n)
		}
	default:
		t.Fatalf("no member %q", k)
	}
}

// B1, and that no limit is lifted but by saying so.
func TestBounds(t *testing.T) {
	zero := Spec{}.Bounds()
	want := Limits{
		Wall: 30 * time.Second, CPU: 30 * time.Second, AddressSpace: 512 << 20, Memory: 2 << 30,
		Output: 1 << 20, Descriptors: 64, Processes: 64,
	}
	if zero != want {
		t.Errorf("the zero Spec has %+v", zero)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			Profile: rapid.SampledFrom([]Profile{"", ProfileCommand, ProfileAgent, ProfileServer, ProfileCode}).Draw(t, "profile"),
			Limits:  Limits{Memory: rapid.Int64Min(Unlimited).Draw(t, "memory")},
		}
		b := s.Bounds()
		if s.Limits.Memory != 0 && b.Memory != s.Limits.Memory {
			t.Fatalf("memory %d became %d", s.Limits.Memory, b.Memory)
		}
		if b.Wall == 0 || b.CPU == 0 || b.AddressSpace == 0 || b.Memory == 0 || b.Output == 0 || b.Descriptors == 0 || b.Processes == 0 {
			t.Fatalf("a limit is zero: %+v", b)
		}
	})
}

func TestWorkingDir(t *testing.T) {
	for want, s := range map[string]Spec{
		"/":  {Workspace: Workspace{Path: "/hidden"}},
		"/w": {Workspace: Workspace{Path: "/w", Mode: ReadOnly}},
		"/d": {Dir: "/d", Workspace: Workspace{Path: "/w", Mode: ReadOnly}},
	} {
		if got := s.WorkingDir(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestReportString(t *testing.T) {
	for want, r := range map[string]Report{
		"box: none":                            {},
		"box: none; missing: network":          {Tier: TierNone, Missing: []string{"network"}},
		"box: none; permissive":                {Tier: "native", Permissive: true},
		"box: native: landlock=abi6 seccomp":   {Tier: "native", Enforced: []string{"landlock=abi6", "seccomp"}},
		"box: native; inferred: cgroup":        {Tier: "native", Inferred: []string{"cgroup"}},
		"box: native: seccomp; missing: files": {Tier: "native", Enforced: []string{"seccomp"}, Missing: []string{"files"}},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Report
		if err := json.Unmarshal(b, &back); err != nil || back.String() != want {
			t.Errorf("%s reads back as %q", b, back)
		}
	}
	r := Report{Tier: "native", Enforced: []string{"landlock=abi6"}, Inferred: []string{"cgroup"}}
	if !r.Has(LayerLandlock) || r.Has(LayerCgroup) || r.Has("land") || !r.Complete() {
		t.Error("Has or Complete")
	}
}

func TestExitStatus(t *testing.T) {
	for e, want := range map[Exit]int{
		{}: 125, {Cause: CauseExit, Code: 3}: 3, {Cause: CauseSignal, Signal: 11}: 139, {Cause: CauseDeadline}: 124, {Cause: CauseKill}: 137,
	} {
		if e.Status() != want {
			t.Errorf("%v has status %d, want %d", e, e.Status(), want)
		}
	}
}

func TestCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "in")
		n := rapid.Int64Range(0, 64).Draw(t, "n")
		c := Cap(iotestOneByte{bytes.NewReader(in)}, n)
		out, err := io.ReadAll(c)
		keep := min(int(n), len(in))
		if err != nil || !bytes.Equal(out, in[:keep]) || c.Dropped() != int64(len(in)-keep) {
			t.Fatalf("%q, %d dropped, %v", out, c.Dropped(), err)
		}
	})
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return o.r.Read(p[:1])
}

type fakeTier struct {
	name string
	err  error
}

func (f fakeTier) Name() string                             { return f.name }
func (f fakeTier) Probe(context.Context) (Report, error)    { return Report{Tier: f.name}, f.err }
func (f fakeTier) Start(context.Context, Spec) (Box, error) { return nil, f.err }

// B2: never another tier than the operator named.
func TestPick(t *testing.T) {
	broken := errors.New("probe broke")
	tiers := []Tier{fakeTier{"a", ErrUnsupported}, fakeTier{"b", nil}, fakeTier{"c", broken}}
	for names, want := range map[string]string{
		"b": "b", "a b": "b", "a": "!a: not supported", "c b": "!probe broke", "x": "!there are: a, b, c", "b x": "!there are", "": "!none is named",
	} {
		got, r, err := Pick(t.Context(), strings.Fields(names), tiers...)
		if text, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v, want %s", names, err, text)
			}
			continue
		}
		if err != nil || got.Name() != want || r.Tier != want {
			t.Errorf("%q: %v, %v", names, got, err)
		}
	}
	if _, _, err := Pick(t.Context(), []string{"a"}, tiers...); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v does not wrap ErrUnsupported", err)
	}
}
