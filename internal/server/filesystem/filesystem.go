// Package filesystem is a tool server for files: reading, writing, editing, listing
// and searching beneath a few directories, over MCP. Its tools have the names,
// arguments and result texts of the npm package
// @modelcontextprotocol/server-filesystem, which agents know, and one more:
// delete_file.
//
// It decides nothing. Which call may happen is the gate's affair, and the paths of
// a call arrive resolved; they are not trusted for that. The directories are those
// of its [Options]: what a client says of its own roots is ignored.
//
// Invariants:
//
//	FS1  Every access is made through an [os.Root] that was opened at the start,
//	     so no path, link or race leads out of the allowed directories.
//	FS2  A file is replaced as a whole or not at all, and keeps its permissions.
//	     Nothing that exists is replaced where the tool says that it creates or
//	     moves.
//	FS3  Only regular files are read and written: no device, pipe or socket.
//	FS4  Work and answers are bounded: bytes, entries, depth, results and time.
//	     An answer that was cut short says so.
//	FS5  Calls that change files run one at a time.
package filesystem

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
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

// The bounds of FS4.
const (
	maxText    = 4 << 20 // bytes of text read or written in one call
	maxMedia   = 8 << 20 // bytes of a file that is returned in base64
	maxFiles   = 1000    // files read in one call
	maxEntries = 200_000 // directory entries visited in one call
	maxResults = 20_000  // directory entries returned in one call
	maxDepth   = 128     // directories within each other
	maxTime    = 30 * time.Second
)

// Options say what a server may touch.
type Options struct {
	// Roots are the directories, absolute paths. At least one. A relative path in
	// a call is taken from the first.
	Roots []string
}

// server is the state of one run.
type server struct {
	roots []root
	write sync.Mutex // held by every call that changes files
}

// Serve speaks MCP on in and out, one JSON message a line, until in ends or ctx
// does. It closes both. The error is nil when the client has gone.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser, o Options) error {
	s, err := open(o)
	if err != nil {
		return err
	}
	defer s.close()
	srv, err := s.mcp()
	if err != nil {
		return err
	}
	err = srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("serving files: %w", err)
	}
	return nil
}

func open(o Options) (*server, error) {
	if len(o.Roots) == 0 {
		return nil, errors.New("serving files: no directory is named")
	}
	s := &server{}
	for _, dir := range o.Roots {
		r, err := openRoot(dir)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("serving files: %w", err)
		}
		s.roots = append(s.roots, r)
	}
	return s, nil
}

func (s *server) close() {
	for _, r := range s.roots {
		r.handle.Close()
	}
}

// mcp returns the server with its tools. Every tool of the list has a handler and
// every handler a tool.
func (s *server) mcp() (*mcp.Server, error) {
	handlers := map[string]mcp.ToolHandler{
		"read_file":                 tool(s.readText),
		"read_text_file":            tool(s.readText),
		"read_media_file":           tool(s.readMedia),
		"read_multiple_files":       tool(s.readMultiple),
		"write_file":                tool(s.writeFile),
		"edit_file":                 tool(s.editFile),
		"create_directory":          tool(s.createDirectory),
		"list_directory":            tool(s.listDirectory),
		"list_directory_with_sizes": tool(s.listWithSizes),
		"directory_tree":            tool(s.directoryTree),
		"move_file":                 tool(s.moveFile),
		"search_files":              tool(s.searchFiles),
		"get_file_info":             tool(s.fileInfo),
		"list_allowed_directories":  tool(s.listAllowed),
		"delete_file":               tool(s.deleteFile),
	}
	return toolset.New("filesystem", definitions, handlers)
}

// tool makes a handler of run: it decodes the arguments strictly, bounds the time,
// and turns an error into a result that the agent can read.
func tool[In any](run func(context.Context, In) (*mcp.CallToolResult, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, maxTime)
		defer cancel()
		var in In
		if args := req.Params.Arguments; len(args) > 0 {
			if err := strictjson.Unmarshal(args, &in); err != nil {
				return failed(fmt.Errorf("reading arguments: %w", err)), nil
			}
		}
		res, err := run(ctx, in)
		if err != nil {
			return failed(err), nil
		}
		return res, nil
	}
}

func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}
}

// said returns a result that is one text, in both forms that MCP has. Notes follow
// in blocks of their own, so that they cannot be taken for content.
func said(text string, notes ...string) *mcp.CallToolResult {
	res := &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: map[string]string{"content": text},
	}
	for _, n := range notes {
		if n != "" {
			res.Content = append(res.Content, &mcp.TextContent{Text: n})
		}
	}
	return res
}

// reason returns err without the paths that package os puts before it: the caller
// names the path that the agent gave.
func reason(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	if le := (*os.LinkError)(nil); errors.As(err, &le) {
		return le.Err
	}
	return err
}
