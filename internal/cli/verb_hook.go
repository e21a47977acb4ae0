package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/hooks"
	"ringfence/internal/daemon/api"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// A hook in a box shows the token of envHookToken where hookURL says. Nothing sets envHookURL:
// where it is set, somebody wants to answer.
const (
	envHookURL   = "RINGFENCE_HOOK_URL"
	envHookToken = "RINGFENCE_HOOK_TOKEN"
)

// codeBlocked is how hooks say that a tool must not be used, of every agent.
const codeBlocked = 2

// newHook is "ringfence hook".
func newHook(s *streams) *cobra.Command {
	var policy string
	var wait span
	c := &cobra.Command{
		Use:   "hook AGENT",
		Short: "Be the hook that an agent asks before it uses a tool of its own",
		Long: "Be the hook that an agent asks before it uses a tool of its own: what it is about to\n" +
			"do is read from standard input, decided, and answered as the agent reads it.\n" +
			"\"ringfence init\" writes it into the settings of agents. The agent must be one of\n" +
			strings.Join(hooks.Agents(), ", ") + ". An agent that does not ask is not held by this: \"ringfence run\" holds it.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeBlocked, "the tool must not be used; the reason is on standard error"}),
		RunE: func(c *cobra.Command, args []string) error {
			answer, err := askHook(c.Context(), s, args[0], policy, wait)
			if err != nil {
				return &exitError{code: codeBlocked, err: fmt.Errorf("not allowed: %w", err)}
			}
			if _, err = s.out.Write(answer); err != nil {
				return &exitError{code: codeBlocked, err: fmt.Errorf("not allowed, since it cannot be answered: %w", err)}
			}
			return nil
		},
	}
	c.Flags().StringVar(&policy, "policy", "", "compiled constitution, a `DIR`; without it the default one applies")
	c.Flags().Var(&wait, "ask-wait", "`TIME` that a person is waited for, such as 90s (default: as configured)")
	return c
}

// maxHook is more than package hooks reads, in bytes.
const maxHook = 8 << 20

func askHook(ctx context.Context, s *streams, agent, policy string, wait span) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, hookPatience, errors.New("nobody answered in time"))
	defer cancel()
	body, err := io.ReadAll(io.LimitReader(s.in, maxHook))
	if err != nil {
		return nil, fmt.Errorf("reading what the agent says: %w", err)
	}
	if inBox() {
		token, _ := paths.Variable(envHookToken)
		return postHook(ctx, hookURL+agent, token, body)
	}
	if _, ok := paths.Variable(envHookURL); ok {
		return nil, fmt.Errorf("%s is set, which nothing of ours does: whoever set it, such as the settings of a repository, wants to answer in the place of the policy; unset it", envHookURL)
	}
	u, err := hooks.Parse(agent, body)
	if errors.Is(err, hooks.ErrNoTool) || err == nil && u.Own {
		return nil, nil
	}
	if err == nil && u.Ours != "" {
		names, err := frontServers()
		if err != nil || u.By(names) {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return decideHook(ctx, u, policy, wait)
}

// hookPatience is less than agents wait for their hooks ("ringfence init" writes 10 minutes):
// one that is late may count as permission.
const hookPatience = 9 * time.Minute

// frontServers are the names of the servers that "ringfence mcp" is in front of by default.
func frontServers() ([]string, error) {
	file := ""
	if err := ownList(&file); err != nil || file == "" {
		return nil, err
	}
	list, _, err := readList(file, slog.New(slog.DiscardHandler))
	var names []string
	for _, srv := range list {
		names = append(names, srv.Name)
	}
	return names, err
}

// hookURL is where hooks in a box ask. No variable says so: settings of a repository set those.
var hookURL = "http://127.0.0.1:" + strconv.Itoa(bridge.ToolsPort) + hooks.Path

// inBox reports whether this process is the hook of a box, by where its program is.
func inBox() bool {
	self, err := proc.Executable()
	return err == nil && self == hookProgram
}

// postHook asks who holds the box that this process is in.
func postHook(ctx context.Context, url, token string, body []byte) (answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: ipc.HTTP("")}
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxHook))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// decideHook has a use decided in a session of its own, which goes on with the last one of
// the same conversation: what the agent has touched is known.
func decideHook(ctx context.Context, u hooks.Use, policy string, wait span) ([]byte, error) {
	own, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	conf, _, err := settings()
	if err != nil {
		return nil, err
	}
	last := conversation(own, u)
	r := api.OpenRequest{
		Principal: "default/" + u.Agent, Verb: "hook", Workspace: u.Dir, Ask: api.AskDesk, AskSeconds: wait.seconds(), Resumes: last.read(),
		Servers: []api.ServerInfo{agentTools(u.Dir)},
	}
	if r.Workspace == "" {
		if r.Workspace, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("finding the workspace: %w", err)
		}
	}
	if conf.AskNever {
		r.Ask = api.AskNever
	}
	if policy != "" {
		if r.PolicyDir, err = filepath.Abs(policy); err != nil {
			return nil, fmt.Errorf("finding the policy: %w", err)
		}
	}
	client, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is to be recorded was
	session, err := client.OpenSession(ctx, r)
	if err != nil && r.Resumes != "" { // the record may have been begun anew
		r.Resumes = ""
		session, err = client.OpenSession(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	allowed, reason, err := false, "", hooks.List(ctx, session)
	if err == nil {
		allowed, reason, err = hooks.Ask(ctx, session, u)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err = errors.Join(err, session.Close(closing), last.write(session.Opened().Session)); err != nil {
		return nil, err
	}
	return hooks.Answer(u.Agent, u, allowed, reason), nil
}

// agentTools are the tools of an agent, as a session knows them.
func agentTools(dir string) api.ServerInfo {
	return api.ServerInfo{
		Name: hooks.Server, Report: json.RawMessage(`"none: the agent's own tools"`), Argv: []string{hooks.Server}, Dir: dir, Annotations: hooks.Server,
	}
}

// A lastSession is the file that names the last session of a conversation of an agent.
type lastSession string

func conversation(home string, u hooks.Use) lastSession {
	sum := sha256.Sum256([]byte(u.Agent + "\x00" + u.Session))
	return lastSession(filepath.Join(paths.Hooks(home), hex.EncodeToString(sum[:12])))
}

// read is the session, "" if there is none.
func (l lastSession) read() string {
	text, err := os.ReadFile(string(l))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (l lastSession) write(session string) error {
	if err := os.Mkdir(filepath.Dir(string(l)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keeping the session of a conversation: %w", err)
	}
	return atomicfile.WriteSoon(string(l), []byte(session+"\n"), 0o600)
}
