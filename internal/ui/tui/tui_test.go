package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func aQuestion(id, text string) api.Question {
	return api.Question{
		ID: id, Session: "s-1", Principal: "default/claude", Tool: "files.write_file", Deadline: noon.Add(5 * time.Minute), Calls: 1, Mark: 1, Text: text,
		Effects: []act.Effect{{Kind: act.Overwrite, Resource: act.Resource{Type: act.Path, Text: "/w/\x1b[31ma"}}},
		Scopes:  []api.QuestionScope{{Form: "exact", Text: "exactly this call"}, {Form: "subtree", Text: "overwrite anywhere beneath /w", Such: "/w/deeper/file", Not: "/elsewhere"}},
	}
}

// text is a page as a person sees it.
func text(rows []row, width int) string {
	var b bytes.Buffer
	s := screen{out: &b}
	if err := s.draw(rows, width); err != nil {
		return err.Error()
	}
	var all []string
	for _, r := range rows {
		mark := " "
		if r.strong {
			mark = "#"
		}
		all = append(all, strings.TrimRight(mark+harmless(cut(r.text, width)), " "))
	}
	return strings.Join(all, "\n") + "\n"
}

// TestGolden: pages are as they were looked at and found right.
func TestGolden(t *testing.T) {
	long := "Question aaaaaaaa: may the agent do this?\n\n  would    1 effect\n  arguments, in which words of the agent can be:\n" + strings.Repeat("  | Approved by admin: press y ␛[2J "+strings.Repeat("x", 60)+"\n", 20) + "  until    12:05:00 UTC\n"
	open := []api.Question{aQuestion("aaaaaaaa", long), aQuestion("bbbbbbbb", "Question bbbbbbbb: may the agent do this?\n  | \x1b]0;漢字\u202e\x07 \x9b2J\n")}
	for name, keys := range map[string][]string{
		"first": nil, "unread": {"y"}, "second": {"\t"}, "scope": {"\t", "s", "2"}, "always": {"\t", "a"}, "message": {"m", "use a branch"}, "end": {"k"}, "read": {" ", " ", " ", " "},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon
			m := newModel(Options{Title: "claude in /w", Key: 0x1c, Now: func() time.Time { return now }, Propose: func(context.Context, api.Question, int) (string, error) { return "", nil }})
			m.questions(open, nil, now)
			m.view(24, 80, now)
			for _, k := range keys {
				now = now.Add(deaf)
				m.typed([]byte(k), now)
				m.view(24, 80, now)
			}
			file, got := filepath.Join("testdata", name+".txt"), text(m.view(24, 80, noon), 80)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%v, the page is\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// TestU1U2U3: when a key answers.
func TestU1U2U3(t *testing.T) {
	short, long := "may it?\n", strings.Repeat("  | more\n", 50)
	for _, c := range []struct {
		name, text string
		steps      []string // keys, or "+" and milliseconds
		yes, no    int
	}{
		{"a yes", short, []string{"+700", "y"}, 1, 0},
		{"a no", short, []string{"+700", "n"}, 0, 1},
		{"U1 too early", short, []string{"y", "+699", "y", "n"}, 0, 0},
		{"U1 another question", short, []string{"+700", "\t", "y", "+699", "y"}, 0, 0},
		{"U1 another question, later", short, []string{"+700", "\t", "+700", "y"}, 1, 0},
		{"U2 not read", long, []string{"+700", "y"}, 0, 0},
		{"U2 a no needs no reading", long, []string{"+700", "n"}, 0, 1},
		{"U2 jumped to the end", long, []string{"+700", "\x1b[F", "y"}, 0, 0},
		{"U2 read", long, []string{"+700", " ", " ", " ", " ", " ", "y"}, 1, 0},
		{"U3 in company", short, []string{"+700", "yy", "ay", "y\x1b[A", "\x1b[Ay"}, 0, 0},
		{"U3 the answer of a terminal", short, []string{"+700", "\x1b]ly\x1b\\", "\x1b", "]l", "y", "\x1b\\", "\x1bP1$r", "y", "\x1b\\", "\x1b[", "y"}, 0, 0},
		{"U3 with Alt", short, []string{"+700", "\x1by", "\x1b", "y"}, 0, 0},
		{"once", short, []string{"+700", "y", "y"}, 1, 0},
		{"for the session", short, []string{"+700", "s", "2", "y"}, 1, 0},
		{"not after all", short, []string{"+700", "s", "q", "+700"}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := noon
			m := newModel(Options{Title: "t", Key: 0x1c, Now: func() time.Time { return now }})
			m.questions([]api.Question{aQuestion("aaaaaaaa", c.text), aQuestion("bbbbbbbb", c.text)}, nil, now)
			yes, no := 0, 0
			for _, k := range c.steps {
				m.view(24, 80, now)
				if wait, ok := strings.CutPrefix(k, "+"); ok {
					d, err := time.ParseDuration(wait + "ms")
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
					continue
				}
				for _, a := range m.typed([]byte(k), now) {
					if a.choice.Yes {
						yes++
					} else {
						no++
					}
				}
			}
			if yes != c.yes || no != c.no {
				t.Errorf("%d yes and %d no, want %d and %d", yes, no, c.yes, c.no)
			}
		})
	}
}

// TestSelected: the question that is chosen stays so however many others come, and when it goes
// no key answers the next at once.
func TestSelected(t *testing.T) {
	now := noon
	m := newModel(Options{Now: func() time.Time { return now }})
	first := aQuestion("aaaaaaaa", "first\n")
	m.questions([]api.Question{first}, nil, now)
	m.view(24, 80, now)
	now = now.Add(deaf)
	all := []api.Question{aQuestion("00000000", "earlier\n"), first}
	for range 1000 {
		all = append(all, aQuestion("cccccccc", "later\n"))
	}
	m.questions(all, nil, now)
	if page := m.view(24, 80, now); len(page) != 24 {
		t.Errorf("a page of %d rows", len(page))
	}
	if a := m.typed([]byte("y"), now); len(a) != 1 || a[0].q.ID != "aaaaaaaa" {
		t.Fatalf("answered %v", a)
	}
	m.questions(all[:1], nil, now)
	m.view(24, 80, now)
	if a := m.typed([]byte("y"), now); len(a) != 0 {
		t.Errorf("the next was answered at once: %v", a)
	}
}

// TestU4: whatever is in a question, and however large the page, nothing of it but what places
// rows reaches the terminal, and no row is longer than the terminal is wide.
func TestU4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")) })
		q := aQuestion("aaaaaaaa", raw.Draw(t, "text"))
		q.Tool, q.Scopes[1].Text, q.Scopes[1].Such = raw.Draw(t, "tool"), raw.Draw(t, "scope"), rapid.String().Draw(t, "such")
		m := newModel(Options{Title: raw.Draw(t, "title"), Now: func() time.Time { return noon }})
		m.questions([]api.Question{q}, errors.New("x"), noon)
		m.questions([]api.Question{q}, nil, noon)
		m.mode = rapid.SampledFrom([]mode{reading, scoping, writing, ending}).Draw(t, "mode")
		m.message = raw.Draw(t, "message")
		rows, columns := rapid.IntRange(1, 60).Draw(t, "rows"), rapid.IntRange(1, 120).Draw(t, "columns")
		page := m.view(rows, columns, noon)
		if len(page) > rows {
			t.Fatalf("%d rows of %d", len(page), rows)
		}
		for _, r := range page {
			line := harmless(cut(r.text, columns))
			if cells(line) > columns || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q has %d cells", line, cells(line))
			}
		}
	})
}

// FuzzKeys: whatever a terminal sends, in whatever pieces, names the same keys, and no answer of
// a terminal to a question is a key.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("y\x1b[A\x1b]ly\x1b\\\x1bP1$ry\x1b\\é"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var whole, pieces keys
		want, _ := whole.feed(data)
		var got []string
		for i := range data {
			one, _ := pieces.feed(data[i : i+1])
			got = append(got, one...)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%q in pieces, %q at once", got, want)
		}
		if bytes.ContainsAny(data, "\x07\x1b\x18\x1a") {
			return
		}
		var k keys
		if pressed, _ := k.feed([]byte("\x1b]l" + string(data) + "\x1b\\")); len(pressed) > 0 {
			t.Fatalf("the answer of a terminal is %q", pressed)
		}
	})
}

// fakeDesk is a desk with one question.
type fakeDesk struct {
	mu  sync.Mutex
	got []api.Choice
}

func (d *fakeDesk) Questions(context.Context) ([]api.Question, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.got) > 0 {
		return nil, nil
	}
	return []api.Question{aQuestion("aaaaaaaa", "may it?\n")}, nil
}

func (d *fakeDesk) Question(context.Context, string) (api.Question, error) {
	return aQuestion("aaaaaaaa", "may it?\n"), nil
}

func (d *fakeDesk) Answer(_ context.Context, _ string, c api.Choice) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, c)
	return nil
}

// TestOpen (U4, U5): a page takes an answer and goes; what it wrote asks the terminal nothing
// and leaves it as it was.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, typed := io.Pipe()
		var out bytes.Buffer
		d := &fakeDesk{}
		go func() {
			<-time.After(2 * time.Second)
			_, _ = typed.Write([]byte("y"))
			<-time.After(2 * time.Second)
			_, _ = typed.Write([]byte("d"))
		}()
		action, err := Open(t.Context(), Terminal{In: in, Out: &out, Close: in.Close, Size: func() (int, int) { return 24, 80 }}, Options{Desk: d, Title: "t"})
		if err != nil || action != Detach || len(d.got) != 1 || !d.got[0].Yes || d.got[0].Mark != 1 {
			t.Fatalf("%v, %v, %v", action, err, d.got)
		}
		text := out.String()
		for _, query := range []string{"\x1b[c", "\x1b[?u", "$p", "\x1b[6n", "\x1b[>q", "\x1b[?2004h", "\x1b[>1u"} {
			if strings.Contains(text, query) {
				t.Errorf("it wrote %q", query)
			}
		}
		if !strings.HasPrefix(text, "\x1b[?1049h") || !strings.HasSuffix(text, "\x1b[?7h\x1b[?25h\x1b[?1049l") {
			t.Errorf("it began with %q and ended with %q", text[:20], text[len(text)-30:])
		}
	})
}
