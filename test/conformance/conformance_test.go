//go:build unix

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/sandbox/native"
	"ringfence/test/rig"
)

// TestMain lets the test binary be the child of a box, or the client that the suite tests.
func TestMain(m *testing.M) {
	native.Child()
	if os.Getenv(asClient) != "" {
		if err := beClient(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// everything is the server that the suite is written for.
const everything = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// A run is one run of the suite: a revision, what is behind, and whether other servers
// are beside it, so that tools have longer names.
type run struct {
	name, revision, behind string
	aggregated             bool
}

var runs = []run{
	{"2025-11-25 sessions", "2025-11-25", "sessions", false},
	{"2025-11-25 stateless", "2025-11-25", "stateless", false},
	{"2025-11-25 stdio", "2025-11-25", "stdio", false},
	{"2025-11-25 aggregated", "2025-11-25", "sessions", true},
	{"2026-07-28 stateless", "2026-07-28", "stateless", false},
	{"2026-07-28 sessions", "2026-07-28", "sessions", false},
	{"2026-07-28 stdio", "2026-07-28", "stdio", false},
	{"2026-07-28 aggregated", "2026-07-28", "stateless", true},
}

// asRun is the name in the list of what is expected for the client's side.
const asRun = "client"

// TestConformance: every scenario of both revisions, but for those that are listed.
func TestConformance(t *testing.T) {
	modules := suite(t)
	s := newStage(t)
	expected := readExpected(t)
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			got := s.play(t, modules, r, false, "--requirements", r.revision)
			if len(got) < 30 {
				t.Fatalf("only %d scenarios ran", len(got))
			}
			s.again(t, modules, r, got, expected)
			passed := 0
			for scenario, wrong := range got {
				why, listed := expected[r.name+" "+scenario]
				switch {
				case wrong == "":
					passed++
				case !listed:
					t.Errorf("%s: %s", scenario, wrong)
				}
				if wrong == "" && listed {
					t.Errorf("%s passes, and is listed as failing: %s", scenario, why)
				}
			}
			t.Logf("%d of %d scenarios pass", passed, len(got))
		})
	}
}

// suite returns the folder of the suite, or skips the test where a person has not
// installed it. In CI it must be there.
func suite(t *testing.T) (modules string) {
	t.Helper()
	dir := os.Getenv("RINGFENCE_TEST_NODE_DIR")
	if dir == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("RINGFENCE_TEST_NODE_DIR is not set; run make test")
		}
		t.Skip("needs node and the conformance suite from npm: run make test")
	}
	return filepath.Join(dir, "node_modules")
}

// readExpected reads what does not pass: "RUN | SCENARIO | REASON", where RUN is the
// name of a run or the beginning of the names of several.
func readExpected(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, "|")
		if len(parts) != 3 || strings.TrimSpace(parts[2]) == "" {
			t.Fatalf("expected.txt: %q is not RUN | SCENARIO | REASON", line)
		}
		found := false
		for _, r := range append([]run{{name: asRun}}, runs...) {
			if strings.HasPrefix(r.name, strings.TrimSpace(parts[0])) {
				all[r.name+" "+strings.TrimSpace(parts[1])] = strings.TrimSpace(parts[2])
				found = true
			}
		}
		if !found {
			t.Fatalf("expected.txt: no run begins with %q", parts[0])
		}
	}
	return all
}

// A stage is a home in which everything that the server offers is annotated, approved
// and allowed.
type stage struct {
	home   *rig.Home
	server string
	bundle string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	bin, err := rig.Build(t.Context(), dir)
	s := &stage{server: filepath.Join(dir, "everything")}
	if err = errors.Join(err, rig.GoBuild(t.Context(), s.server, everything)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // a box has another user
		t.Fatal(err)
	}
	if s.home, err = rig.New(bin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.home.Close(); err != nil {
			t.Error(err)
		}
	})
	s.bundle, err = s.home.Policy(t.Context(), "may use conformance.*", "may use conformance.elicitation/create",
		"may use conformance.sampling/createMessage", "may use conformance.roots/list", "may ask the person", "may do anything in the workspace")
	if err != nil {
		t.Fatal(err)
	}
	s.annotate(t)
	s.approve(t)
	return s
}

// ok runs ringfence, which must succeed.
func (s *stage) ok(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := s.home.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *stage) annotate(t *testing.T) {
	t.Helper()
	draft := filepath.Join(s.home.Person, "annotation.json")
	text, err := os.ReadFile("testdata/annotation.json")
	if err == nil {
		err = os.WriteFile(draft, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.ok(t, "annotate-tools", "--accept", "conformance", "-o", draft, "--yes")
}

// approve has every definition of the server seen and approved.
func (s *stage) approve(t *testing.T) {
	t.Helper()
	c := s.home.Command(t.Context(), "mcp", "--servers", s.servers(t, "stdio", "", false), "--policy", s.bundle, "--ask", "never")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = session.ListTools(t.Context(), nil)
	_, perr := session.ListPrompts(t.Context(), nil)
	if err = errors.Join(err, perr, session.Close()); err != nil {
		t.Fatal(err)
	}
	var pins []struct{ Server, Tool, Status, Hash string }
	out, rerr := s.home.Run(t.Context(), "tools", "review", "--json") // its status says that there is something to review
	if err := json.Unmarshal(out, &pins); err != nil || len(pins) < 30 {
		t.Fatal(len(pins), err, rerr)
	}
	for _, p := range pins {
		if p.Status != "approved" {
			s.ok(t, "tools", "pin", strings.TrimSuffix(p.Server+"."+p.Tool, "."), p.Hash)
		}
	}
}

// servers writes the list of servers of a run.
func (s *stage) servers(t *testing.T, behind, at string, aggregated bool) string {
	t.Helper()
	settings := map[string]any{"annotations": "conformance"}
	entry := map[string]any{"command": s.server, "ringfence": settings}
	if behind != "stdio" {
		entry = map[string]any{"type": "http", "url": "http://" + at + "/", "ringfence": settings}
	}
	list := map[string]any{"conformance": entry}
	if aggregated {
		list["files"] = map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}
	}
	name, err := s.home.Servers(list)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// play runs the suite and returns, for each scenario, what is wrong with it. Patient, it waits
// longer for everything.
func (s *stage) play(t *testing.T, modules string, r run, patient bool, which ...string) map[string]string {
	t.Helper()
	at := s.upstream(t, r.behind)
	where := s.listen(t, s.servers(t, r.behind, at, r.aggregated))
	front := inFront(t, where, s.token(t))
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	argv := append([]string{filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", front + "/mcp", "-o", out}, which...)
	if patient {
		longer, err := filepath.Abs("testdata/patience.cjs")
		if err != nil {
			t.Fatal(err)
		}
		argv = append([]string{"--require", longer}, argv...)
	}
	c := exec.CommandContext(ctx, filepath.Join(modules, ".bin", "node"), argv...)
	said, err := c.CombinedOutput()
	if c.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("the suite did not run: %v\n%s", err, said)
	}
	return results(t, out)
}

// again plays those scenarios once more that failed and are not listed, each alone and with
// more patience: the suite waits half a second for some things, on a machine that runs other
// tests too, and a server on standard streams that asks says not whom, so that nobody is asked
// within five seconds of another client.
func (s *stage) again(t *testing.T, modules string, r run, got, expected map[string]string) {
	t.Helper()
	for scenario, wrong := range got {
		if _, listed := expected[r.name+" "+scenario]; wrong == "" || listed {
			continue
		}
		t.Logf("once more: %s: %s", scenario, wrong)
		got[scenario] = s.play(t, modules, r, true, "--spec-version", r.revision, "--scenario", scenario)[scenario]
	}
}

// upstream starts the server over HTTP and returns its address, "" for stdio.
func (s *stage) upstream(t *testing.T, behind string) string {
	t.Helper()
	if behind == "stdio" {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	c := exec.Command(s.server, "-http", at, "-stateless="+map[string]string{"sessions": "false", "stateless": "true"}[behind])
	start(t, c)
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
			return at
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// start starts a process that ends with the test.
func start(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		late := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		defer late.Stop()
		_ = c.Wait()
	})
}

var atURL = regexp.MustCompile(`MCP at (http://\S+)/mcp`)

// listen starts ringfence and returns the URL of its host.
func (s *stage) listen(t *testing.T, servers string) string {
	t.Helper()
	c := s.home.Command(context.Background(), "mcp", "--servers", servers, "--policy", s.bundle, "--ask", "never", "--listen", "127.0.0.1:0")
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, c)
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		if m := atURL.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() {
				}
			}()
			return m[1]
		}
		t.Log(lines.Text())
	}
	t.Fatal("ringfence did not listen")
	return ""
}

func (s *stage) token(t *testing.T) string {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(s.home.Own, "mcp-token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// inFront shows the token for the suite, which has no way to, and otherwise passes
// everything on as if it was not there.
func inFront(t *testing.T, where, token string) string {
	t.Helper()
	target, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	var own string
	p := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // the suite breaks streams off
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = strings.Replace(r.In.Host, own, ":"+target.Port(), 1)
			if origin := r.In.Header.Get("Origin"); origin != "" {
				r.Out.Header.Set("Origin", strings.Replace(origin, own, ":"+target.Port(), 1))
			}
			r.Out.Header.Set("Authorization", "Bearer "+token)
			// All of it before it is sent on: a body that is still being read when the answer comes
			// is closed by the server here, and the answer then cut by the client (net/http).
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Log("reading a request of the suite:", err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
	})
	own = p.URL[strings.LastIndex(p.URL, ":"):]
	t.Cleanup(p.Close)
	return p.URL
}

var stamp = regexp.MustCompile(`^server-(.*)-\d{4}-\d{2}-\d{2}T.*$`)

// results reads what the suite found: for each scenario the checks that failed or
// warned, "" if none.
func results(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		m := stamp.FindStringSubmatch(filepath.Base(filepath.Dir(f)))
		text, err := os.ReadFile(f)
		if err != nil || m == nil {
			t.Fatal(f, err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatal(f, err)
		}
		var wrong []string
		for _, c := range checks {
			if c.Status != "SUCCESS" && c.Status != "INFO" && c.Status != "SKIPPED" {
				wrong = append(wrong, c.Status+" "+c.ID+": "+c.ErrorMessage)
			}
		}
		slices.Sort(wrong)
		if all[m[1]] = strings.Join(wrong, "; "); len(checks) == 0 && !strings.HasPrefix(m[1], "tasks-") {
			all[m[1]] = "nothing was checked"
		}
	}
	return all
}
