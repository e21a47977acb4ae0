//go:build linux

package net_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence/internal/daemon/api"
)

// A crowd is many agents at once, at one engine. Of each there is one marker, which is in all
// that it says; wherever another's turns up, something has crossed over.
type crowd struct {
	*place
	t       *testing.T
	members []*member
	model   *model
	at      string
	servers string
	bin     string // directory of the agents that are this program

	mu     sync.Mutex
	faults []string
	asked  int // of models
	people int // answers of the person
}

// A member is one agent of a crowd.
type member struct {
	agent      agent
	real       bool // from npm
	work       string
	marker, id string
	runs       int
	asked      int // of models; see crowd.mu
}

const (
	engineMost = 120 << 20 // bytes in memory
	boxesEnd   = 5 * time.Second
)

var markers = regexp.MustCompile(`marker-[A-Z2-7]{26}`)

// TestSessionsAgents: many agents work at once and nothing of one comes to another: no file,
// key, token, tool or answer of a person. When the engine is killed no box lives on, and each
// session goes on when it is resumed.
func TestSessionsAgents(t *testing.T) {
	n, last := 6, 8*time.Second
	if text := os.Getenv("RINGFENCE_AGENTS"); text != "" {
		var err error
		if last, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		n = 20
	}
	c := newCrowd(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	defer working.Wait()
	for _, m := range c.members {
		if !m.real {
			m.id = c.detached(m)
		}
	}
	working.Go(func() { c.answers(ctx) })
	c.introduced()
	engine := c.engine()
	start := time.Now()
	c.reals(ctx, start.Add(last))
	rest(ctx, time.Until(start.Add(last)))
	peak := highest(t, engine)
	if peak > engineMost {
		t.Errorf("the engine had %d MB", peak>>20)
	}
	c.stay()
	t.Logf("%d agents for %s: %d requests to models, %d answers of the person, the engine had at most %d MB",
		n, time.Since(start).Round(time.Second), c.asked, c.people, peak>>20)
	c.killed(engine)
	for _, m := range c.members {
		m.id = c.again(m)
	}
	for _, m := range c.members {
		c.lives(m)
	}
	for _, m := range c.members {
		if _, err := c.Run(t.Context(), "sessions", "stop", m.id); err != nil {
			t.Error(err)
		}
	}
	cancel()
	working.Wait()
	c.apart()
	for _, f := range c.faults[:min(20, len(c.faults))] {
		t.Error(f)
	}
}

// newCrowd is a place with n agents, of which some are real ones, if they are here.
func newCrowd(t *testing.T, n int) *crowd {
	t.Helper()
	p := newPlace(t)
	c := &crowd{place: p, t: t, bin: filepath.Join(filepath.Dir(p.Person), "agents")}
	c.model, _ = newModel(t, p.world, "cat marker")
	close(c.model.seen)
	c.model.tool, c.model.args = "read_text_file", `{"path":"marker"}`
	served := func() string {
		return "https://" + modelsAt + ":" + serve(t, &http.Server{Handler: http.HandlerFunc(c.serve), TLSConfig: p.world.config.Clone()})
	}
	c.at = served()
	openai := served() + "/v1"
	config, err := json.Marshal(object{
		"network": object{"resolver": p.world.resolver, "private": []string{"127.0.0.0/8", "::1/128"}, "ca": []string{p.world.ca}},
		"models":  object{"providers": []object{{"name": "anthropic", "url": c.at}, {"name": "openai", "url": openai}}},
	})
	codex := filepath.Join(p.Person, known[1].mine)
	err = errors.Join(err, os.WriteFile(filepath.Join(p.Own, "config.json"), config, 0o600), os.MkdirAll(c.bin, 0o755),
		exec.Command("cp", os.Args[0], filepath.Join(c.bin, asAgent)).Run(), os.MkdirAll(filepath.Dir(codex), 0o700),
		os.WriteFile(codex, []byte(strings.ReplaceAll(known[1].text, "${AT}/v1", openai)), 0o600))
	if err == nil {
		c.servers, err = p.Servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem", "annotations": "filesystem"}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	rules := []string{
		"The agent may do anything in the workspace.", "The agent must ask before using filesystem.delete_file.", "The agent may run any command.",
		"The agent may use the models anthropic/*.", "The agent may use the models openai/*.", "The agent may read any file in " + c.bin + ".",
	}
	if p.node != "" {
		rules = append(rules, "The agent may read any file in "+p.node+".")
	}
	if p.policy, err = p.Policy(t.Context(), rules...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.members = append(c.members, c.member(i))
	}
	return c
}

// member is the agent i: two of ten are from npm.
func (c *crowd) member(i int) *member {
	m := &member{marker: "marker-" + rand.Text(), work: filepath.Join(c.Person, "of-"+strconv.Itoa(i), "work")}
	m.agent = agent{name: asAgent, provider: "anthropic", variable: "ANTHROPIC_API_KEY", key: "sk-ant-api03-Of" + rand.Text()}
	if c.node != "" && i%5 == 0 {
		a := agents[i/5%2]
		m.real, m.agent = true, agent{name: a.name, provider: a.provider, variable: a.variable, key: a.key[:12] + rand.Text()}
	}
	if err := errors.Join(os.MkdirAll(m.work, 0o700), os.WriteFile(filepath.Join(m.work, "marker"), []byte(m.marker), 0o600)); err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *crowd) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// strangers are the markers in text that are not m's.
func (m *member) strangers(text []byte) (all []string) {
	for _, found := range markers.FindAll(text, -1) {
		if string(found) != m.marker {
			all = append(all, string(found))
		}
	}
	return all
}

// serve is the model, which is told by key whose each request is.
func (c *crowd) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key := strings.TrimPrefix(r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"), "Bearer ")
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.agent.key == key })
	c.mu.Lock()
	c.asked++
	if i >= 0 {
		c.members[i].asked++
	}
	c.mu.Unlock()
	if err != nil || i < 0 {
		c.fault("a request with the key %q, %v", key, err)
	} else if s := c.members[i].strangers(body); len(s) > 0 {
		c.fault("%s asks of %q with the key of %s", c.members[i].work, s, key)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.model.ServeHTTP(w, r)
	c.model.mu.Lock()
	c.model.bodies, c.model.asked, c.model.keys = nil, nil, nil
	c.model.mu.Unlock()
}

// as is ringfence with args as the person has it who started m.
func (c *crowd) as(ctx context.Context, m *member, args ...string) *exec.Cmd {
	cmd := c.running(ctx, m.agent, c.at, args...)
	if !m.real {
		i := slices.IndexFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
		cmd.Env[i] = "PATH=" + c.bin + ":" + strings.TrimPrefix(cmd.Env[i], "PATH=")
	}
	cmd.Dir = m.work
	return cmd
}

func (c *crowd) flags(m *member) []string {
	return []string{"--ask", "desk", "--ask-wait", "1m", "--policy", c.policy, "--servers", c.servers, "-w", m.work, "--budget-tokens", "1000000000", "--timeout", "1h"}
}

// detached starts m and returns its session.
func (c *crowd) detached(m *member, typed ...string) string {
	c.t.Helper()
	return c.begun(c.as(c.t.Context(), m, slices.Concat([]string{"run", "--detach"}, c.flags(m), []string{m.agent.name}, typed)...))
}

// stay has the real agents work at terminals, each with something said.
func (c *crowd) stay() {
	c.t.Helper()
	asked := func(m *member) int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return m.asked
	}
	for _, m := range c.members {
		if m.real {
			was := asked(m)
			m.id = c.detached(m, "Look around. I am "+m.marker)
			until(c.t, "it has looked around", patience, func() bool { return asked(m) >= was+3 })
		}
	}
}

func (c *crowd) begun(cmd *exec.Cmd) string {
	c.t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%q: %v\n%s", cmd.Args, err, errs.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// introduced tells each agent what another has: the directory, the key on loan, the token.
func (c *crowd) introduced() {
	c.t.Helper()
	told := map[string]bool{}
	var fakes []*member
	for _, m := range c.members {
		if !m.real {
			fakes = append(fakes, m)
		}
	}
	for i, m := range fakes {
		next := fakes[(i+1)%len(fakes)]
		until(c.t, "it works", patience, func() bool {
			_, err := os.Stat(filepath.Join(next.work, "beat"))
			return err == nil
		})
		key, err := os.ReadFile(filepath.Join(next.work, "loaned"))
		token, err2 := os.ReadFile(filepath.Join(next.work, "token"))
		about := next.work + "\n" + string(key) + "\n" + string(token)
		if err = errors.Join(err, err2, os.WriteFile(filepath.Join(m.work, "neighbour"), []byte(about), 0o600)); err != nil {
			c.t.Fatal(err)
		}
		if told[string(key)] || told[string(token)] || len(key) == 0 || len(token) < 20 || string(key) == next.agent.key {
			c.fault("%s has the key %s and the token %s", next.work, key, token)
		}
		told[string(key)], told[string(token)] = true, true
	}
}

// answers is the person: a yes to what ends in yes, a no to anything else.
func (c *crowd) answers(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := c.Connect(ctx)
		for err == nil && ctx.Err() == nil {
			var all []api.Question
			all, err = client.Questions(ctx)
			for _, q := range all {
				if i := slices.IndexFunc(c.members, func(m *member) bool { return m.id == q.Session }); i >= 0 {
					if s := c.members[i].strangers([]byte(q.Text)); len(s) > 0 || !strings.Contains(q.Text, c.members[i].marker) {
						c.fault("%s is asked about %q", c.members[i].work, q.Text)
					}
				}
				if client.Answer(ctx, q.ID, api.Choice{Yes: strings.Contains(q.Args, "-yes"), Mark: q.Mark}) == nil {
					c.mu.Lock()
					c.people++
					c.mu.Unlock()
				}
			}
			rest(ctx, 100*time.Millisecond)
		}
		if client != nil {
			_ = client.Close()
		}
		rest(ctx, 100*time.Millisecond) // the engine was killed
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// reals has the real agents work one time after the other, each by itself.
func (c *crowd) reals(ctx context.Context, end time.Time) {
	var all sync.WaitGroup
	for _, m := range c.members {
		if m.real {
			all.Go(func() {
				for time.Now().Before(end) {
					c.looks(ctx, m)
				}
			})
		}
	}
	all.Wait()
}

func (c *crowd) looks(ctx context.Context, m *member) {
	prompt := []string{"-p", "Look around. I am " + m.marker}
	if m.agent.name == "codex" {
		prompt = []string{"exec", "--skip-git-repo-check", "Look around. I am " + m.marker}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := c.as(ctx, m, slices.Concat([]string{"run"}, c.flags(m), []string{m.agent.name}, prompt)...).CombinedOutput()
	m.runs++
	if s := m.strangers(out); len(s) > 0 || err != nil || !strings.Contains(string(out), "all done") {
		c.fault("%s in %s: %v, %q\n%.2000s", m.agent.name, m.work, err, s, out)
	}
}

// engine is the process of the engine.
func (c *crowd) engine() int {
	c.t.Helper()
	var status struct {
		PID int `json:"pid"`
	}
	out, err := c.Run(c.t.Context(), "engine", "status", "--json")
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return status.PID
}

// highest is what a process had in memory at most, in bytes.
func highest(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, ok := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(after)
	if err != nil || !ok || len(fields) == 0 {
		t.Fatalf("the engine: %v", err)
	}
	kb, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// inBoxes are the processes that have the home of the person, and are none of ringfence.
func (c *crowd) inBoxes() (all []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte("HOME="+c.Person+"\x00")) || bytes.Contains(env, []byte("RINGFENCE_HOME=")) {
			continue
		}
		line, _ := os.ReadFile(d + "/cmdline")
		all = append(all, fmt.Sprintf("%s %.100q", filepath.Base(d), line))
	}
	return all
}

// killed kills the engine and waits for all to end.
func (c *crowd) killed(engine int) {
	c.t.Helper()
	if n := len(c.inBoxes()); n < len(c.members) {
		c.t.Fatalf("of %d agents %d processes are seen", len(c.members), n)
	}
	c.complaints()
	if err := syscall.Kill(engine, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	start := time.Now()
	for left := c.inBoxes(); len(left) > 0; left = c.inBoxes() {
		if time.Since(start) > boxesEnd {
			c.t.Fatalf("%s after the engine was killed there are %d processes in boxes:\n%s", boxesEnd, len(left), strings.Join(left, "\n"))
		}
		rest(c.t.Context(), 20*time.Millisecond)
	}
	for _, m := range c.members { // what was asked at that moment was denied
		_ = os.Remove(filepath.Join(m.work, "faults"))
	}
	c.t.Logf("%s after the engine was killed no box was left", time.Since(start).Round(time.Millisecond))
}

// again resumes m and returns the session that goes on.
func (c *crowd) again(m *member) string {
	c.t.Helper()
	until(c.t, "its end is known", patience, func() bool { return c.stateOf(c.t, m.id) == "interrupted" })
	_ = os.Remove(filepath.Join(m.work, "beat"))
	return c.begun(c.as(c.t.Context(), m, "sessions", "resume", m.id))
}

// lives waits until m works again.
func (c *crowd) lives(m *member) {
	c.t.Helper()
	if !m.real {
		until(c.t, "it works again", patience, func() bool {
			_, err := os.Stat(filepath.Join(m.work, "beat"))
			return err == nil
		})
	}
	if got := c.stateOf(c.t, m.id); got != "running" {
		log, _ := c.Run(c.t.Context(), "sessions", "logs", m.id)
		c.t.Errorf("%s in %s is %s after it was resumed\n%.2000s", m.agent.name, m.work, got, log)
	}
}

// apart looks through what is left of each: the workspace, the home, the record.
func (c *crowd) apart() {
	c.t.Helper()
	look := func(m *member, dir string) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if s := m.strangers(text); len(s) > 0 {
				c.fault("%s has %q", path, s)
			}
			return err
		})
		if err != nil {
			c.fault("looking through %s: %v", dir, err)
		}
	}
	c.complaints()
	for _, m := range c.members {
		look(m, m.work)
		if m.real && m.runs == 0 {
			c.fault("%s in %s did not work once", m.agent.name, m.work)
		}
	}
	homes, _ := filepath.Glob(filepath.Join(c.Own, "homes", "*", "*"))
	if len(homes) != len(c.members) {
		c.fault("there are the homes %q", homes)
	}
	for _, home := range homes {
		i := slices.IndexFunc(c.members, func(m *member) bool { return len(firstMarker(home, m.marker)) > 0 })
		if i < 0 {
			c.fault("in %s nobody was", home)
			continue
		}
		look(c.members[i], home)
	}
	c.recorded()
}

// complaints are what agents have written down.
func (c *crowd) complaints() {
	for _, m := range c.members {
		if text, err := os.ReadFile(filepath.Join(m.work, "faults")); err == nil {
			c.fault("%s in %s says: %.2000s", m.agent.name, m.work, text)
		}
	}
}

// firstMarker is a file beneath dir that a marker is in, "" if there is none.
func firstMarker(dir, marker string) string {
	out, _ := exec.Command("grep", "-rlaF", "--", marker, dir).Output()
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// recorded checks the record: it is whole, and each session is about one agent.
func (c *crowd) recorded() {
	c.t.Helper()
	if out, err := c.Run(c.t.Context(), "ledger", "verify"); err != nil {
		c.t.Errorf("%v\n%s", err, out)
	}
	out, err := c.Run(c.t.Context(), "ledger", "show", "--json")
	if err != nil {
		c.t.Fatal(err)
	}
	about, seen := map[string]string{}, map[string]bool{}
	for line := range bytes.Lines(out) {
		var e struct{ Session string }
		if err := json.Unmarshal(line, &e); err != nil {
			c.t.Fatalf("%v: %.300s", err, line)
		}
		for _, found := range markers.FindAllString(string(line), -1) {
			if was := about[e.Session]; was != "" && was != found {
				c.fault("the record of %s is about %s and %s: %.600s", e.Session, was, found, line)
			}
			about[e.Session], seen[found] = found, true
		}
	}
	if len(seen) < len(c.members)/2 {
		c.fault("on record are %q", slices.Collect(maps.Keys(seen)))
	}
}
