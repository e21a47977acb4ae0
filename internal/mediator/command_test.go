package mediator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sandbox"
)

func TestInferDenials(t *testing.T) {
	a, err := txtar.ParseFile("testdata/denials.txtar")
	if err != nil || len(a.Files)%2 != 0 {
		t.Fatal(err)
	}
	for i := 0; i < len(a.Files); i += 2 {
		b := sandbox.Spec{
			Dir: "/w/sub", Workspace: sandbox.Workspace{Path: "/w", Mode: sandbox.ReadOnly}, ReadOnly: []string{"/data"},
		}
		if strings.HasSuffix(a.Files[i].Name, ": agent") {
			b.Profile = sandbox.ProfileAgent
		}
		var got strings.Builder
		for _, d := range inferDenials(boxed{b, strings.HasPrefix(a.Files[i].Name, "flags")}, string(a.Files[i].Data)) {
			fmt.Fprintf(&got, "%s %s: %s", d.Op, d.Object, d.Rule)
			if d.Fix != "" {
				got.WriteString("; " + d.Fix)
			}
			if d.Count > 1 {
				fmt.Fprintf(&got, " ×%d", d.Count)
			}
			got.WriteByte('\n')
			if d.Observed {
				t.Errorf("%s: it was observed", a.Files[i].Name)
			}
		}
		if want := string(a.Files[i+1].Data); got.String() != want {
			t.Errorf("%s: got\n%swant\n%s", a.Files[i].Name, got.String(), want)
		}
	}
}

func FuzzInferDenials(f *testing.F) {
	f.Add("touch: cannot touch 'x': Read-only file system\n")
	f.Add("İ Read-only file system ‘’\xff'")
	f.Fuzz(func(t *testing.T, stderr string) {
		b := sandbox.Spec{Workspace: sandbox.Workspace{Path: "/w", Mode: sandbox.ReadOnly}}
		all := inferDenials(boxed{Spec: b}, stderr)
		for _, d := range all {
			if len(d.Object) > maxObject+len(b.Workspace.Path)+8 || d.Rule == "" {
				t.Errorf("%+v", d)
			}
		}
		if len(all) > maxInferred {
			t.Errorf("%d denials", len(all))
		}
	})
}

// TestArgvOf: what needs a shell gets bash and no other.
func TestArgvOf(t *testing.T) {
	bash := filepath.Join(t.TempDir(), "bash")
	if err := os.WriteFile(bash, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"/usr/bin/go test ./... -run=A,B": {"/usr/bin/go", "test", "./...", "-run=A,B"},
		"/usr/bin/ls  -l   @a%b+c:d":      {"/usr/bin/ls", "-l", "@a%b+c:d"},
		"/usr/bin/ls":                     {"/usr/bin/ls"},
	} {
		if got, err := argvOf(line, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{
		"ls", "time /usr/bin/ls", "CI=1 /usr/bin/ls", "! /usr/bin/ls", "/usr/bin/ls &> x", "/usr/bin/ls |& /usr/bin/cat", "/usr/bin/ls ~/x", "/usr/bin/ls ./*",
		"/usr/bin/ls 'a'", `/usr/bin/ls a\ b`, "/usr/bin/ls\n/usr/bin/ls", "/usr/bin/ls\t-l", "/usr/bin/ls #x", "/usr/bin/ls {a,b}", "/usr/bin/ls ", "/usr/bin/ls é", "cd x && /usr/bin/ls", "",
	} {
		if got, err := argvOf(line, []string{"/nothing", bash}); err != nil || !slices.Equal(got, []string{bash, "--norc", "--noprofile", "-c", line}) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
		if got, err := argvOf(line, nil); err == nil {
			t.Errorf("%q: runs %q without bash", line, got)
		}
	}
}

// Property: bash makes of a plain line the words that are run without it.
func TestPlainIsPlain(t *testing.T) {
	if _, err := os.Stat("/usr/bin/bash"); err != nil {
		t.Fatal(err, "this test needs bash")
	}
	const chars = "abcXYZ019_./:=,@%+-"
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune(chars)), 1, 8, -1), 1, 5).Draw(t, "words")
		line := "/usr/bin/printf -- %s+ " + strings.Join(words, strings.Repeat(" ", rapid.IntRange(1, 3).Draw(t, "blanks")))
		argv, err := argvOf(line, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("/usr/bin/bash", "--norc", "--noprofile", "-c", line).Output()
		if err != nil || string(out) != strings.Join(words, "+")+"+" || !slices.Equal(argv[3:], words) {
			t.Fatalf("%q: bash makes %q of it, %v; here it is %q", line, out, err, argv)
		}
	})
}

// Property: of a stream the beginning and the end are kept, and the rest is counted.
func TestKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := kept{tail: ring{max: keptOutput / 2}}
		var all []byte
		for n := range rapid.IntRange(0, 8).Draw(t, "writes") {
			p := bytes.Repeat([]byte{byte('a' + n)}, rapid.IntRange(0, keptOutput/3).Draw(t, "size"))
			all = append(all, p...)
			if got, err := k.Write(p); got != len(p) || err != nil {
				t.Fatal(got, err)
			}
		}
		text, left := k.text()
		if left == 0 && text != string(all) || int64(len(all))-left > keptOutput {
			t.Fatalf("of %d bytes %d are left out", len(all), left)
		}
		if left > 0 && (!strings.HasPrefix(text, string(all[:keptOutput/2])) || !strings.HasSuffix(text, string(all[len(all)-keptOutput/2:])) || !strings.Contains(text, fmt.Sprintf("[… %d bytes left out …]", left))) {
			t.Fatal("the wrong bytes are left out")
		}
	})
}

// Property: a server that must know which call it serves is told, whatever else the
// call says, and the arguments are untouched.
func TestTokenAlways(t *testing.T) {
	for _, params := range []string{
		`{"name":"a","arguments":{"x":1}}`, `{"arguments":{"x":1},"name":"a","_meta":{}}`, `{"_meta":{ "k":{"v":1} },"name":"a","arguments":{"x":1}}`,
		`{"_meta":{"progressToken":"p"},"name":"a","arguments":{"x":1}}`, `{"_meta":{ },"name":"a"}`, `{"name":"a"}`,
	} {
		m, err := readClient([]byte(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p, err := readCall(m)
		if err != nil {
			t.Fatal(err)
		}
		line, err := p.withToken().toServer(m, 7, "a", []byte(`{"x":1}`))
		if err != nil || strictjson.Check(bytes.TrimSpace(line)) != nil {
			t.Fatalf("%s: %s, %v", params, line, err)
		}
		var got struct {
			Params struct {
				Meta      map[string]any `json:"_meta"`
				Arguments json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &got); err != nil || got.Params.Meta["progressToken"] != float64(7) || string(got.Params.Arguments) != `{"x":1}` {
			t.Errorf("%s: %s, %v", params, line, err)
		}
	}
}

// A boxTier makes boxes in which nothing runs.
type boxTier struct {
	sandbox.Tier
	spec sandbox.Spec
	err  error
}

func (b *boxTier) Start(_ context.Context, s sandbox.Spec) (sandbox.Box, error) {
	b.spec = s
	if b.err != nil {
		return nil, b.err
	}
	if s.Confirm != nil {
		if err := s.Confirm(sandbox.Report{}); err != nil {
			return nil, err
		}
	}
	return emptyBox{}, nil
}

type emptyBox struct{ sandbox.Box }

func (emptyBox) Stdin() io.WriteCloser       { return nopCloser{} }
func (emptyBox) Stdout() io.Reader           { return strings.NewReader("\x1b[2Jout\xff") }
func (emptyBox) Stderr() io.Reader           { return strings.NewReader("err") }
func (emptyBox) Wait() (sandbox.Exit, error) { return sandbox.Exit{Cause: sandbox.CauseDeadline}, nil }

func (emptyBox) Denials() []sandbox.Denial {
	return []sandbox.Denial{{Op: "create", Object: "/w/.envrc", Observed: true}}
}

// A deniedError is the error of a launch that was denied.
type deniedError struct{}

func (deniedError) Error() string      { return "denied: delete /w is forbidden by c3" }
func (deniedError) Denied() act.Ticket { return act.Ticket{} }

type nopCloser struct{}

func (nopCloser) Write(p []byte) (int, error) { return len(p), nil }
func (nopCloser) Close() error                { return nil }

// TestRun: what a command gets, how it is put on record, and what is said of it.
func TestRun(t *testing.T) {
	work, bin := t.TempDir(), t.TempDir()
	tool := filepath.Join(bin, "tool")
	if err := os.WriteFile(tool, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	ticket := act.Ticket{ID: "s/4", Filter: act.Filter{LeaveOut: []string{work + "/private"}}, Effects: []act.Effect{
		{Kind: act.Execute, Resource: act.Resource{Text: `["` + tool + `","x"]`, Facts: map[string]any{"program": "tool"}}}, {Kind: act.Read},
	}}
	args := fmt.Sprintf(`{"command":"%s x","cwd":%q,"workspace":%q,"timeout_seconds":5}`, tool, work, work)
	full := errors.New("the disk is full")
	for _, c := range []struct {
		name   string
		set    Settings
		path   []string
		args   string
		record error
		launch error
		want   string // of the result, or of the error
		spec   sandbox.Spec
		log    string
	}{
		{
			name: "read-only", set: Settings{Builtin: "exec", Timeout: time.Hour}, log: "record s/4", want: `"exit_status":124,"ended":"deadline","stdout":"\u001b[2Jout\ufffd","stderr":"err"`,
			spec: sandbox.Spec{Profile: sandbox.ProfileCommand, Workspace: sandbox.Workspace{Path: work, Mode: sandbox.ReadOnly}, Limits: sandbox.Limits{Wall: 5 * time.Second, CPU: time.Hour}},
		},
		{
			name: "may change", set: Settings{Builtin: "exec", Workspace: sandbox.ReadWrite}, log: "launch finish", want: `"object":"/w/.envrc"`,
			spec: sandbox.Spec{Profile: sandbox.ProfileAgent, Workspace: sandbox.Workspace{Path: work, Mode: sandbox.ReadWrite}, Limits: sandbox.Limits{Wall: 5 * time.Second, CPU: sandbox.Unlimited}},
		},
		{name: "not on record", record: full, log: "record s/4", want: "nothing was run, as there is no box for it: the disk is full"},
		{name: "denied with what it may change", set: Settings{Builtin: "exec", Workspace: sandbox.ReadWrite}, launch: deniedError{}, want: " denied: delete /w is forbidden by c3"},
		{name: "another program of that name", path: []string{"/usr/bin", bin}, want: ""},
		{name: "not found by name", path: []string{"/usr/bin"}, want: "the name means another program"},
		{name: "not resolved", args: `{"command":"x","cwd":".","workspace":"."}`, want: "were not resolved"},
		{name: "more than is known", args: `{"command":"x","env":{}}`, want: "reading arguments"},
		{name: "unboxed where all are boxed", set: Settings{Builtin: "exec", Unboxed: true}, want: "here every server is in a box"},
	} {
		var log []string
		tier := &boxTier{}
		b := Boxes{Tier: tier, Workspace: work, Home: "/home/u", Path: []string{bin}, Env: []string{"PATH=/x", "HOME=/x", "TMPDIR=/x", "LANG=C"}}
		if c.path != nil {
			b.Path = c.path
		}
		b.RecordCommand = func(_ context.Context, id string, _ sandbox.Report) error {
			log = append(log, "record "+id)
			return c.record
		}
		b.Launch = func(ctx context.Context, _ string, tier sandbox.Tier, s sandbox.Spec) (sandbox.Box, func() error, error) {
			log = append(log, "launch")
			if c.launch != nil {
				return nil, nil, c.launch
			}
			box, err := tier.Start(ctx, s)
			return box, func() error { log = append(log, "finish"); return nil }, err
		}
		if c.args == "" {
			c.args = args
		}
		s := Server{Name: "exec", Ringfence: c.set, Env: map[string]string{"BASH_ENV": "/x", "BASH_FUNC_ls%%": "x", "PATH": "/y", "GOFLAGS": "-v"}}
		out, err := b.Run(t.Context(), s, ticket, []byte(c.args))
		if got := fmt.Sprintf("%s %v", out, err); !strings.Contains(got, c.want) || c.log != "" && strings.Join(log, " ") != c.log {
			t.Errorf("%s: %s, log %q", c.name, got, log)
		}
		if c.spec.Profile == "" {
			continue
		}
		got, bounds := tier.spec, tier.spec.Bounds()
		if got.Profile != c.spec.Profile || got.Workspace != c.spec.Workspace || bounds.Wall != c.spec.Limits.Wall || bounds.CPU != c.spec.Limits.CPU ||
			!slices.Equal(got.Argv, []string{tool, "x"}) || !slices.Equal(got.Denied, ticket.Filter.LeaveOut) || got.Network != "" || got.LaterWritable ||
			!slices.Equal(got.Env, []string{"GOFLAGS=-v", "LANG=C", "PATH=" + bin, "HOME=/home/u"}) || !slices.Contains(got.ReadOnly, tool) {
			t.Errorf("%s: the box is %+v", c.name, got)
		}
	}
}
