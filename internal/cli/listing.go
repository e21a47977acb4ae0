package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/paths"
)

// ownList makes the list of the home the one that is used, if none is named.
func ownList(file *string) error {
	if *file != "" {
		return nil
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	if own := paths.ServersFile(home); fileExists(own) {
		*file = own
	}
	return nil
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// readList returns the servers of a list, and the SHA-256 of what it holds, in hex.
func readList(file string, log *slog.Logger) ([]mediator.Server, string, error) {
	if file == "" {
		return nil, "", &exitError{
			code: codeUsage, err: errors.New("--servers is missing, and no server was added"),
			hint: `it names a file with {"mcpServers": {…}}; "ringfence mcp add" adds a server`,
		}
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, "", &exitError{code: codeUsage, err: fmt.Errorf("reading the list of servers: %w", err)}
	}
	servers, err := parseList(file, src, log)
	return servers, fmt.Sprintf("%x", sha256.Sum256(src)), err
}

// agreedServers returns the servers of a list that may be started from it without a
// session.
func agreedServers(file string, log *slog.Logger) ([]mediator.Server, error) {
	servers, sum, err := readList(file, log)
	if err != nil {
		return nil, err
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	real, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("finding the list of servers: %w", err)
	}
	if err := daemon.CheckList(home, real, sum); err != nil {
		return nil, &exitError{code: codeDenied, err: err}
	}
	return servers, nil
}

func parseList(file string, src []byte, log *slog.Logger) ([]mediator.Server, error) {
	servers, warnings, err := mediator.ParseServers(src, paths.Variable)
	if err != nil {
		return nil, &exitError{code: codeUsage, err: fmt.Errorf("%s:%w", file, err)}
	}
	for _, w := range warnings {
		log.Warn(file + ":" + w)
	}
	if len(servers) == 0 {
		log.Warn(file + " lists no server, so there is no tool")
	}
	for _, srv := range servers {
		if err := checkBuiltin(srv); err != nil {
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("%s:%s: server %s: %w", file, srv.Place("builtin"), srv.Name, err)}
		}
	}
	return servers, nil
}

// checkBuiltin refuses a built-in server that does not exist.
func checkBuiltin(srv mediator.Server) error {
	name := srv.Ringfence.Builtin
	if name == "" || slices.Contains(builtins(), name) {
		return nil
	}
	hint := "; there are " + strings.Join(builtins(), ", ")
	if near := strictjson.Nearest(name, builtins()); near != "" {
		hint = "; did you mean " + strconv.Quote(near) + "?"
	}
	return fmt.Errorf("no built-in server is called %q%s", name, hint)
}
