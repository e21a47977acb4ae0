package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ringfence/internal/session"
)

// TestHookIsAnsweredByNobodyElse: outside of a box a variable, which settings of a repository
// can set, names nobody who answers in the place of the policy.
func TestHookIsAnsweredByNobodyElse(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = io.WriteString(w, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`)
	}))
	defer other.Close()
	t.Setenv("RINGFENCE_HOME", t.TempDir())
	t.Setenv(envHookURL, other.URL+"/")
	var out, err bytes.Buffer
	in := strings.NewReader(`{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"rm x"}}`)
	if status := Main([]string{"hook", "claude"}, in, &out, &err); status != codeBlocked || asked || out.Len() > 0 || !strings.Contains(err.String(), envHookURL) {
		t.Errorf("status %d, asked %v, %q, %q", status, asked, &out, &err)
	}
}

// TestResumeLeavesTheCommandAsItWas: what is called like a flag of ours, but is the command's or
// the agent's, is theirs when the run goes on.
func TestResumeLeavesTheCommandAsItWas(t *testing.T) {
	for _, c := range []struct{ agent, argv, want string }{
		{"", "run -- git switch --detach main", "run --resumes=s-1 -- git switch --detach main"},
		{"", "run --fresh --detach -- x --fresh --resumes=y", "run --resumes=s-1 --workspace=/w -- x --fresh --resumes=y"},
		{"", "--json run -- x", "--json run --resumes=s-1 -- x"},
		{"", "run --resumes=s-0 -- x", "run --resumes=s-1 -- x"},
		{"claude", "run claude --continue --detach", "run --resumes=s-1 --continue claude --continue --detach"},
		{"claude", "run --detach --net policy claude -- x", "run --resumes=s-1 --continue --net policy claude -- x"},
		{"claude", "start --agent claude -- --fresh", "start --resumes=s-1 --continue --agent claude -- --fresh"},
		{"claude", "run --continue claude", "run --resumes=s-1 --continue claude"},
		{"", "", ""},
	} {
		got := again(session.Run{ID: "s-1", Agent: c.agent, Workspace: "/w", Argv: strings.Fields(c.argv)})
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %s", c.argv, got, c.want)
		}
	}
}
