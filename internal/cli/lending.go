package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ringfence/internal/act/loan"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/pty"
)

// typed reports whether a person types what this process reads.
func (s *streams) typed() bool {
	in, ok := s.in.(*os.File)
	return ok && pty.IsTerminal(in)
}

// ownSecrets returns the keys of providers that this process was given: in its
// environment, else in the file envFile, else in ".env" of the home. The working
// directory, which may be a stranger's, is not looked at.
func ownSecrets(providers []loan.Provider, envFile string) ([]loan.Own, error) {
	files := []string{}
	if envFile != "" {
		files = append(files, envFile)
	}
	home, err := paths.Home()
	if err != nil {
		return nil, err
	}
	files = append(files, paths.DotEnv(home))
	var sets []map[string]string
	for _, name := range files {
		set, err := readDotEnv(name)
		if errors.Is(err, fs.ErrNotExist) && name != envFile {
			continue
		}
		if err != nil {
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("reading the variables in %s: %w", name, err)}
		}
		sets = append(sets, set)
	}
	return loan.FromVariables(providers, func(name string) (string, bool) {
		if v, ok := paths.Variable(name); ok && strings.TrimSpace(v) != "" {
			return v, true
		}
		for _, set := range sets {
			if v, ok := set[name]; ok {
				return v, true
			}
		}
		return "", false
	}), nil
}

// maxDotEnv is more than package loan reads of a file of variables, in bytes.
const maxDotEnv = 1 << 20

func readDotEnv(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDotEnv))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	defer clear(text)
	return loan.DotEnv(text)
}

// lent is what a box of session has in the place of secrets: env with the variables that
// show it, and the whole of it for the way out. A variable of a provider that was handed
// on without a value shows its sentinel too, never the key.
func lent(ctx context.Context, session *api.Session, providers []loan.Provider, envFile string, env []string) ([]string, []loan.Sentinel, error) {
	own, err := ownSecrets(providers, envFile)
	if err != nil {
		return nil, nil, err
	}
	sentinels, err := session.Sentinels(ctx, own)
	if err != nil {
		return nil, nil, err
	}
	env = slices.Clone(env)
	for _, o := range own {
		env = slices.DeleteFunc(env, func(kv string) bool {
			name, value, _ := strings.Cut(kv, "=")
			return slices.Contains(o.Env, name) && strings.TrimSpace(value) == string(o.Value)
		})
	}
	return append(env, loan.Environment(sentinels, env)...), sentinels, nil
}
