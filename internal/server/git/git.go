// Package git is a tool server for git repositories, over MCP. Its tools have the
// names, arguments and results of the npm package @cyanheads/git-mcp-server, which
// agents know. It runs the real git through a [Runner], so that whoever starts the
// server chooses the box.
//
// A repository is hostile input: its configuration, hooks and attributes can name
// programs that git would run. So git runs with everything of that kind turned off,
// and where turning off is not possible the call is refused and says which setting
// is in the way. The server decides nothing else: which call may happen is the
// gate's affair. Paths, revisions and URLs arrive resolved and are not trusted.
//
// It does not sign or verify (that would run gpg), does not rebase interactively,
// and does not follow redirects of a remote.
//
// Invariants:
//
//	G1  Nothing that a repository says makes git run a program: no hook, filter,
//	    diff or merge driver, monitor, pager, editor, helper, alias or transport.
//	G2  No argument of a call is read by git as an option: words that begin with
//	    "-" are refused, and "--" or "--end-of-options" stand before the others
//	    wherever git takes them.
//	G3  A remote is contacted at exactly the URL that was given or is configured,
//	    and only over https, http, ssh and git; over paths only if Options say so.
//	    Calls that are not about a remote contact none.
//	G4  Only repositories and directories beneath Options.Roots are touched.
//	G5  Neither the configuration of the machine nor that of the person is read,
//	    nor any environment but the one made here.
//	G6  Output and time are bounded, and an answer that was cut short says so.
//
// G1 is judged by the configuration as it is when a call starts. Who can change the
// repository's configuration between that moment and the one in which git reads it
// is beyond this package: boxes hold that file.
package git

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/server/toolset"
)

// definitions is the tool list, as MCP has it, without the envelope.
//
//go:embed tools.json
var definitions []byte

// The bounds of G6.
const (
	maxOutput  = 4 << 20 // bytes of output that is read as a list
	maxContent = 2 << 20 // bytes of a diff or file that is returned
	localTime  = time.Minute
	remoteTime = 10 * time.Minute
)

// Options say what a server may touch and how it runs git.
type Options struct {
	// Roots are the directories beneath which repositories may be, absolute paths.
	// At least one. The first is where relative paths start until
	// git_set_working_dir is called.
	Roots []string
	// Run runs git. Required.
	Run Runner
	// Program is the absolute path of git. Required.
	Program string
	// Name and Email are the identity for commits in repositories that configure
	// none.
	Name, Email string
	// LocalRemotes allows remotes that are paths beneath Roots or file URLs.
	LocalRemotes bool
	// RemoteEnv is added to the environment of git when it contacts a remote:
	// proxies, the socket of an SSH agent. "KEY=value".
	RemoteEnv []string
}

// server is the state of one run.
type server struct {
	opt   Options
	roots []string // real paths

	mu  sync.Mutex
	dir string // what git_set_working_dir set; "" if nothing
}

// Serve speaks MCP on in and out, one JSON message a line, until in ends or ctx
// does. It closes both. The error is nil when the client has gone.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser, o Options) error {
	s, err := newServer(o)
	if err != nil {
		return fmt.Errorf("serving git: %w", err)
	}
	srv, err := s.mcp()
	if err != nil {
		return fmt.Errorf("serving git: %w", err)
	}
	err = srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("serving git: %w", err)
	}
	return nil
}

func newServer(o Options) (*server, error) {
	switch {
	case len(o.Roots) == 0:
		return nil, errors.New("no directory is named")
	case o.Run == nil:
		return nil, errors.New("nothing to run git with")
	case !filepath.IsAbs(o.Program):
		return nil, fmt.Errorf("the program %q is not an absolute path", o.Program)
	}
	s := &server{opt: o}
	for _, r := range o.Roots {
		if !filepath.IsAbs(r) {
			return nil, fmt.Errorf("directory %q is not an absolute path", r)
		}
		real, err := filepath.EvalSymlinks(r)
		if err != nil {
			return nil, fmt.Errorf("opening directory: %w", err)
		}
		s.roots = append(s.roots, real)
	}
	return s, nil
}

// mcp returns the server with its tools. Every tool of the list has a handler and
// every handler a tool.
func (s *server) mcp() (*mcp.Server, error) {
	return toolset.New("git", definitions, s.handlers())
}

func (s *server) handlers() map[string]mcp.ToolHandler {
	return map[string]mcp.ToolHandler{
		"git_add":                 tool(localTime, s.add),
		"git_blame":               tool(localTime, s.blame),
		"git_branch":              tool(localTime, s.branch),
		"git_changelog_analyze":   tool(localTime, s.changelog),
		"git_checkout":            tool(localTime, s.checkout),
		"git_cherry_pick":         tool(localTime, s.cherryPick),
		"git_clean":               tool(localTime, s.clean),
		"git_clear_working_dir":   tool(localTime, s.clearDir),
		"git_clone":               tool(remoteTime, s.clone),
		"git_commit":              tool(localTime, s.commit),
		"git_diff":                tool(localTime, s.diff),
		"git_fetch":               tool(remoteTime, s.fetch),
		"git_init":                tool(localTime, s.initRepo),
		"git_log":                 tool(localTime, s.log),
		"git_merge":               tool(localTime, s.merge),
		"git_pull":                tool(remoteTime, s.pull),
		"git_push":                tool(remoteTime, s.push),
		"git_rebase":              tool(localTime, s.rebase),
		"git_reflog":              tool(localTime, s.reflog),
		"git_remote":              tool(localTime, s.remote),
		"git_reset":               tool(localTime, s.reset),
		"git_set_working_dir":     tool(localTime, s.setDir),
		"git_show":                tool(localTime, s.show),
		"git_stash":               tool(localTime, s.stash),
		"git_status":              tool(localTime, s.status),
		"git_tag":                 tool(localTime, s.tag),
		"git_worktree":            tool(localTime, s.worktree),
		"git_wrapup_instructions": tool(localTime, s.wrapup),
	}
}

// tool makes a handler of run: it decodes the arguments strictly, bounds the time,
// and turns an error into a result that the agent can read.
func tool[In, Out any](limit time.Duration, run func(context.Context, In) (Out, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var in In
		if args := req.Params.Arguments; len(args) > 0 {
			if err := strictjson.Unmarshal(args, &in); err != nil {
				return failed(fmt.Errorf("reading arguments: %w", err)), nil
			}
		}
		out, err := run(ctx, in)
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("git took longer than %v and was ended: %w", limit, err)
		}
		if err != nil {
			return failed(err), nil
		}
		return result(out)
	}
}

func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "Error: " + err.Error()}}}
}

// result returns v in both forms that MCP has: as indented JSON text, and as data.
func result(v any) (*mcp.CallToolResult, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing result: %w", err)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(bytes.TrimSpace(text.Bytes()))}},
		StructuredContent: v,
	}, nil
}
