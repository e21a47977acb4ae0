package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// TestUses reads testdata/uses.txt: an agent, what it says, and what is asked about; "-" is no
// use of a tool, "own" one of our own server, "!" an error that holds the text.
func TestUses(t *testing.T) {
	text, err := os.ReadFile("testdata/uses.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for part := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(part), "\n")
		if strings.HasPrefix(lines[0], "#") {
			lines = lines[1:]
		}
		if len(lines) != 2 {
			t.Fatalf("%q", part)
		}
		n++
		agent, said, _ := strings.Cut(lines[0], " ")
		u, err := Parse(agent, []byte(said))
		var got string
		switch {
		case errors.Is(err, ErrNoTool):
			got = "-"
		case err != nil:
			got = "! " + err.Error()
		case u.Own:
			got = "own"
		case u.Ours != "":
			got = "ours " + u.Ours
		default:
			args, merr := json.Marshal(u.args)
			if merr != nil {
				t.Fatal(merr)
			}
			got = u.tool + " " + string(args)
		}
		if want := lines[1]; got != want && !(strings.HasPrefix(want, "! ") && strings.HasPrefix(got, "! ") && strings.Contains(got, want[2:])) {
			t.Errorf("%s\ngot  %s\nwant %s", lines[0], got, want)
		}
	}
	if n < 20 {
		t.Errorf("%d cases", n)
	}
}

// FuzzParse (K1, K2): whatever is said, it is an error, no use, or a use of one of our tools.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/uses.txt")
	if err != nil {
		f.Fatal(err)
	}
	var list struct {
		Tools []struct{ Name string } `json:"tools"`
	}
	if err := json.Unmarshal(definitions, &list); err != nil {
		f.Fatal(err)
	}
	ours := map[string]bool{}
	for _, t := range list.Tools {
		ours[t.Name] = true
	}
	for line := range strings.Lines(string(text)) {
		if agent, said, ok := strings.Cut(line, " "); ok {
			f.Add(agent, []byte(said))
		}
	}
	f.Fuzz(func(t *testing.T, agent string, data []byte) {
		u, err := Parse(agent, data)
		if err != nil || u.Own {
			return
		}
		if !ours[u.tool] || u.args["tool"] != u.Name {
			t.Errorf("%q is a use of %q with %v", u.Name, u.tool, u.args)
		}
		if _, err := json.Marshal(u.args); err != nil {
			t.Error(err)
		}
	})
}

// A fake decides by the tool, and keeps what it was asked.
type fake struct {
	asked    []string
	finished int
	err      error
}

func (f *fake) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	if f.err != nil {
		return act.Ticket{}, f.err
	}
	f.asked = append(f.asked, string(r.Verb)+" "+r.Tool)
	t := act.Ticket{Verdict: act.Allow}
	if strings.HasSuffix(r.Tool, ".shell") || strings.HasSuffix(r.Tool, ".other") {
		t.Verdict, t.Reason = act.Deny, "denied: because"
	}
	return t, nil
}

func (f *fake) Finish(context.Context, act.Ticket, act.Outcome) (act.Reply, error) {
	f.finished++
	return act.Reply{}, nil
}

// TestHandler: agents in a box are answered in their own form; what is no use of a tool is
// answered with nothing, and what cannot be read is no permission.
func TestHandler(t *testing.T) {
	f := &fake{}
	s := httptest.NewServer(NewHandler(f, []string{"files"}))
	defer s.Close()
	post := func(agent, body string) (int, string) {
		t.Helper()
		resp, err := http.Post(s.URL+Path+agent, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b strings.Builder
		if err := resp.Write(&b); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(b.String(), "\r\n\r\n")
		return resp.StatusCode, text
	}
	const shell, read = `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"}}`, `{"hook_event_name":"PreToolUse","tool_name":"Read","tool_input":{"file_path":"/a"}}`
	for _, c := range []struct {
		agent, body string
		status      int
		holds       string
	}{
		{"claude", shell, 200, `"permissionDecision":"deny","permissionDecisionReason":"denied: because"`},
		{"claude", read, 200, ""},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"mcp__ringfence__evil__do","tool_input":{}}`, 200, `"permissionDecision":"deny"`},
		{"gemini", `{"hook_event_name":"BeforeTool","tool_name":"mcp_ringfence_evil_do","tool_input":{}}`, 200, `"decision":"deny"`},
		{"claude", `{}`, 400, "does not say what happens"},
		{"codex", shell, 200, `"permissionDecision":"deny"`},
		{"codex", read, 200, ""},
		{"gemini", strings.Replace(shell, "PreToolUse", "BeforeTool", 1), 200, `{"decision":"deny","reason":"denied: because"}`},
		{"cursor", `{"hook_event_name":"beforeShellExecution","command":"ls"}`, 200, `"permission":"deny"`},
		{"cursor", `{"hook_event_name":"beforeReadFile","file_path":"/a"}`, 200, `"permission":"allow"`},
		{"claude", `{"hook_event_name":"Stop"}`, 200, ""},
		{"claude", `{"hook_event_name":"PreToolUse","tool_name":"mcp__ringfence__files__x","tool_input":{}}`, 200, ""},
		{"claude", `{`, 400, "reading what claude says"},
		{"emacs", shell, 400, `hooks of "emacs" are not known`},
	} {
		status, text := post(c.agent, c.body)
		if status != c.status || !strings.Contains(text, c.holds) || c.holds == "" && text != "" {
			t.Errorf("%s %s: %d %s", c.agent, c.body, status, text)
		}
	}
	if f.asked[0] != "tools/list agent" || strings.Count(strings.Join(f.asked, "|"), "tools/list") != 1 || f.finished != 4 {
		t.Errorf("asked %q, %d were handed over", f.asked, f.finished)
	}
	f.err = errors.New("gone")
	if status, _ := post("claude", read); status == 200 {
		t.Error("without an engine there is permission")
	}
	if resp, err := http.Get(s.URL + Path + "claude"); err != nil || resp.StatusCode != 404 {
		t.Errorf("a GET: %v, %v", resp, err)
	} else if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
