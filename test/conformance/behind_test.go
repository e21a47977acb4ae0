//go:build unix

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/remote"
)

// asClient, when it is set, makes the test binary the client that the suite tests: a
// mediator in front of the suite's server, and a client of the Go SDK that has it do
// what the scenario needs.
const asClient = "RINGFENCE_CONFORMANCE_CLIENT"

// clientScenarios are those of the client's side: all that are required of both
// revisions, and of the extensions all that are about logging in.
var clientScenarios = []string{
	"initialize", "tools_call", "request-metadata", "elicitation-sep1034-client-defaults", "sse-retry", "json-schema-ref-no-deref",
	"json-schema-2020-12-preservation", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",

	"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/metadata-issuer-mismatch",
	"auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback", "auth/resource-mismatch",
	"auth/basic-cimd", "auth/pre-registration", "auth/authorization-server-migration",
	"auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none",
	"auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined", "auth/scope-step-up",
	"auth/scope-retry-limit", "auth/offline-access-scope", "auth/offline-access-not-supported",
	"auth/iss-supported", "auth/iss-not-advertised", "auth/iss-supported-missing", "auth/iss-wrong-issuer", "auth/iss-unexpected", "auth/iss-normalized",

	"auth/client-credentials-jwt", "auth/client-credentials-basic", "auth/enterprise-managed-authorization", "auth/dpop", "auth/dpop-nonce", "auth/wif-jwt-bearer",
}

// TestConformanceBehind: what servers see of us passes the client's side of the suite,
// but for those scenarios that are listed.
func TestConformanceBehind(t *testing.T) {
	modules := suite(t)
	expected := readExpected(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range clientScenarios {
		t.Run(scenario, func(t *testing.T) {
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, filepath.Join(modules, ".bin", "node"), filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
				"client", "--command", self, "--scenario", scenario, "-o", out)
			c.Env = append(os.Environ(), asClient+"="+t.TempDir())
			log, err := c.CombinedOutput()
			if c.ProcessState == nil || ctx.Err() != nil {
				t.Fatalf("the suite did not run: %v\n%s", err, log)
			}
			wrong, checked := wrongOf(t, out)
			switch why, listed := expected[asRun+" "+scenario]; {
			case listed && wrong == "" && checked > 0:
				t.Errorf("passes, and is listed as failing: %s", why)
			case !listed && (wrong != "" || checked == 0):
				t.Errorf("%d checks; %s\n%s", checked, wrong, log)
			}
		})
	}
}

// wrongOf reads the checks of the one scenario that ran.
func wrongOf(t *testing.T, dir string) (wrong string, checked int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	deeper, derr := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json")) // a scenario with a slash in its name
	if files = append(files, deeper...); err != nil || derr != nil || len(files) != 1 {
		t.Fatal(files, err, derr)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var checks []struct{ ID, Status, ErrorMessage string }
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range checks {
		if c.Status != "SUCCESS" && c.Status != "INFO" && c.Status != "SKIPPED" {
			all = append(all, c.Status+" "+c.ID+": "+c.ErrorMessage)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; "), len(checks)
}

// An allower allows everything and replies what came.
type allower struct{}

func (allower) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	return act.Ticket{ID: "t", Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow, Bytes: r.Args}, nil
}

func (allower) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	return act.Reply{Body: o.Body}, nil
}

// beClient is what the suite starts: the URL of its server is the last argument.
func beClient() error {
	far, err := farServer(os.Args[len(os.Args)-1])
	if err != nil {
		return err
	}
	m, err := mediator.New(mediator.Options{
		Decider: allower{}, Starter: remote.New(remote.Options{Authorize: authorize}), Session: "s", Principal: "p/a",
		Servers: []mediator.Server{far},
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background(), inR, outW); outW.Close() }()
	confirm := func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		content := map[string]any{}
		if os.Getenv("MCP_CONFORMANCE_SCENARIO") == "sep-2322-client-request-state" {
			content["confirmed"] = true
		}
		return &mcp.ElicitResult{Action: "accept", Content: content}, nil
	}
	o := &mcp.ClientOptions{ElicitationHandler: confirm}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, o).Connect(context.Background(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		return err
	}
	play(s)
	_ = s.Close()
	inW.Close()
	return <-ended
}

// play has the client do what the scenario needs; whether it went well, the suite says.
func play(s *mcp.ClientSession) {
	ctx := context.Background()
	tools, err := s.ListTools(ctx, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing:", err)
		return
	}
	call := func(name string, args map[string]any) {
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args}); err != nil {
			fmt.Fprintln(os.Stderr, "calling", name, err)
		}
	}
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		call("test-tool", map[string]any{})
		return
	}
	switch os.Getenv("MCP_CONFORMANCE_SCENARIO") {
	case "tools_call":
		call("add_numbers", map[string]any{"a": 5, "b": 3})
	case "elicitation-sep1034-client-defaults":
		call("test_client_elicitation_defaults", map[string]any{})
	case "sse-retry":
		call("test_reconnection", map[string]any{})
	case "json-schema-2020-12-preservation":
		for _, t := range tools.Tools {
			if t.Name == "json_schema_2020_12_tool" {
				call("json_schema_echo", map[string]any{"schema": t.InputSchema})
			}
		}
	case "sep-2322-client-request-state":
		for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
			call(name, map[string]any{})
		}
	case "http-standard-headers":
		everyKind(ctx, s, tools)
	case "http-custom-headers":
		var c struct {
			ToolCalls []struct {
				Name      string
				Arguments map[string]any
			}
		}
		_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &c)
		for _, t := range c.ToolCalls {
			call(t.Name, t.Arguments)
		}
	case "http-invalid-tool-headers":
		for _, t := range tools.Tools {
			call(t.Name, map[string]any{"region": "us-west1"})
		}
	}
}

// everyKind makes one request of each kind that has a name.
func everyKind(ctx context.Context, s *mcp.ClientSession, tools *mcp.ListToolsResult) {
	if len(tools.Tools) > 0 {
		_, _ = s.CallTool(ctx, &mcp.CallToolParams{Name: tools.Tools[0].Name, Arguments: map[string]any{}})
	}
	if r, err := s.ListResources(ctx, nil); err == nil && len(r.Resources) > 0 {
		_, _ = s.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.Resources[0].URI})
	}
	if r, err := s.ListPrompts(ctx, nil); err == nil && len(r.Prompts) > 0 {
		_, _ = s.GetPrompt(ctx, &mcp.GetPromptParams{Name: r.Prompts[0].Name, Arguments: map[string]string{}})
	}
}
