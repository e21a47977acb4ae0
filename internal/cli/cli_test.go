package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
)

// TestUsage runs the command lines of testdata/usage.txt; "..." there stands for
// any text within a line.
func TestUsage(t *testing.T) {
	b, err := os.ReadFile("testdata/usage.txt")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(b), "\n$ ringfence") {
		command, want, ok := strings.Cut(block, "\n")
		if !ok || strings.HasPrefix(command, "#") {
			continue
		}
		want, _, _ = strings.Cut(want, "\n\n#")
		t.Run(command, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Main(strings.Fields(command), nil, &out, &errs)
			got := out.String()
			for line := range strings.Lines(errs.String()) {
				got += "! " + line
			}
			got += fmt.Sprintf("= %d", code)
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), `\.\.\.`, ".*")
			if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	denied := &exitError{code: codeDenied, err: errors.New("denied by rule 3"), hint: "ask for approval"}
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{nil, codeDone, ""},
		{errors.New("reading checkpoint: short"), codeFailed, "ringfence: reading checkpoint: short\n"},
		{fmt.Errorf("calling: %w", denied), codeDenied, "ringfence: calling: denied by rule 3\nringfence: ask for approval\n"},
		{&exitError{code: 137}, 137, ""},
		{fmt.Errorf("opening: %w", api.Errorf(api.CodeUnavailable, "disk full")), codeEvidence, "ringfence: opening: disk full\n"},
		{fmt.Errorf("waiting: %w", context.Canceled), codeInterrupted, "ringfence: waiting: context canceled\n"},
	} {
		var errs bytes.Buffer
		s := &streams{out: &sink{w: new(bytes.Buffer)}, err: &sink{w: &errs}}
		if code := s.report(c.err); code != c.code || errs.String() != c.text {
			t.Errorf("%v: got %d %q, want %d %q", c.err, code, errs.String(), c.code, c.text)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestLostOutput: a result that could not be written is not a success.
func TestLostOutput(t *testing.T) {
	for _, args := range []string{"--version", "version", "version --json", "help", "version --help"} {
		var errs bytes.Buffer
		if code := Main(strings.Fields(args), nil, full{}, &errs); code != codeFailed {
			t.Errorf("%s: status %d, want %d", args, code, codeFailed)
		}
		if !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s: said %q", args, errs.String())
		}
	}
}

// TestHelpOfAll: the help of every command ends with its statuses.
func TestHelpOfAll(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		text := helpText(c)
		_, tail, ok := strings.Cut(text, "\nEXIT STATUS\n")
		if !ok || !strings.Contains(tail, "  2  ") || strings.Contains(tail, "\n\n") {
			t.Errorf("help of %q does not end with EXIT STATUS:\n%s", c.CommandPath(), text)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(silent()))
}

func silent() *streams { return &streams{out: &sink{w: io.Discard}, err: &sink{w: io.Discard}} }

// TestOwnStatuses: a verb's own statuses are in its help, in order, and in the
// reference.
func TestOwnStatuses(t *testing.T) {
	root := newRoot(silent())
	root.AddCommand(&cobra.Command{
		Use:         "judge",
		Short:       "Judge",
		Annotations: exits(status{codeDenied, ""}, status{codeFailed, "guilty"}, status{code: 125, means: "no court"}),
		RunE:        func(*cobra.Command, []string) error { return nil },
	})
	judge, _, err := root.Find([]string{"judge"})
	if err != nil {
		t.Fatal(err)
	}
	want := "    0  done\n    1  guilty\n    2  the command line is wrong\n    3  denied, or incomplete\n  125  no court\n  130  interrupted\n"
	if got := helpText(judge); !strings.HasSuffix(got, "EXIT STATUS\n"+want) {
		t.Errorf("help of judge:\n%s\nwant at its end:\n%s", got, want)
	}
	pages := referencePages(root)
	codes := pages[len(pages)-1]
	for _, row := range []string{"| ringfence judge | 1 | guilty |\n", "| ringfence judge | 125 | no court |\n"} {
		if !strings.Contains(codes.text, row) {
			t.Errorf("%s has no row %q", codes.name, row)
		}
	}
	if strings.Contains(codes.text, "judge | 3") {
		t.Errorf("%s repeats a status that has its usual meaning", codes.name)
	}
}

// TestPrintable: nothing that a verb prints for people moves a cursor, hides or
// turns text; what is for people to read stays.
func TestPrintable(t *testing.T) {
	hostile := "a\x1b[2J\u009b31m\r\u202e\u200b\xff\x7f"
	for _, c := range []struct{ in, want string }{
		{"plain – “é” ␛ …\n\tnext\n", "plain – “é” ␛ …\n\tnext\n"},
		{hostile, `a\u{1b}[2J\u{9b}31m\u{d}\u{202e}\u{200b}\x{ff}\u{7f}`},
	} {
		if got := printable(c.in); got != c.want {
			t.Errorf("%q became %q", c.in, got)
		}
	}
	for _, asJSON := range []bool{false, true} {
		var out, errs bytes.Buffer
		s := &streams{out: &sink{w: &out}, err: &sink{w: &errs}, json: asJSON}
		if err := s.value(hostile, func() string { return hostile }); err != nil {
			t.Error(err)
		}
		s.report(&exitError{code: codeFailed, err: errors.New(hostile), hint: hostile})
		if all := out.String() + errs.String(); strings.ContainsAny(all, "\x1b\u009b\r\u202e\u200b\x7f") || strings.Contains(all, "\xff") {
			t.Errorf("printed %q", all)
		}
	}
}

// TestChangedCopy: one changed byte in an export is found, and the line and the
// entry that it is in are named.
func TestChangedCopy(t *testing.T) {
	whole, err := os.ReadFile("../ledger/testdata/small.export")
	if err != nil {
		t.Fatal(err)
	}
	verify := func(text []byte) string {
		name := filepath.Join(t.TempDir(), "copy")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		Main([]string{"verify", "--key", "../ledger/testdata/key.pub", name}, nil, &out, io.Discard)
		return out.String()
	}
	if got := verify(whole); !strings.HasPrefix(got, "valid\n") {
		t.Fatal(got)
	}
	at, entries := 0, 0
	for n, line := range bytes.SplitAfter(whole, []byte("\n")) {
		at += len(line)
		index, _, ok := bytes.Cut(line, []byte(" "))
		if !ok || !bytes.HasSuffix(line, []byte("}\n")) {
			continue
		}
		changed := bytes.Clone(whole)
		changed[at-10] ^= 1
		want := fmt.Sprintf("/copy, line %d: entry %s: ", n+1, index)
		before := display.Count(entries, "entry", "entries") + " before that as they were signed"
		if got := verify(changed); !strings.HasPrefix(got, "invalid: ") || !strings.Contains(got, want) || !strings.Contains(got, before) {
			t.Errorf("line %d: got %q, want %q and %q", n+1, got, want, before)
		}
		entries++
	}
	if entries < 3 {
		t.Errorf("the export has %d entries", entries)
	}
}
