package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A setting is one line of a repository's configuration.
type setting struct {
	section, sub, key string // section and key in lower case
	value             string
	bare              bool // without "=", which git reads as true
}

// name is how git writes the setting's name.
func (s setting) name() string {
	if s.sub == "" {
		return s.section + "." + s.key
	}
	return s.section + "." + s.sub + "." + s.key
}

// A config is the configuration of a repository, in the order of its files.
type config []setting

func (c config) last(section, sub, key string) (string, bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if s := &c[i]; s.section == section && s.key == key && s.sub == sub {
			return s.value, true
		}
	}
	return "", false
}

func (c config) all(section, sub, key string) []string {
	var vs []string
	for i := range c {
		if s := &c[i]; s.section == section && s.key == key && s.sub == sub {
			if s.value == "" {
				vs = nil // git's way to take back what came before
				continue
			}
			vs = append(vs, s.value)
		}
	}
	return vs
}

func (c config) isTrue(section, sub, key string) bool {
	for i := len(c) - 1; i >= 0; i-- {
		if s := &c[i]; s.section == section && s.key == key && s.sub == sub {
			switch strings.ToLower(s.value) {
			case "false", "no", "off", "0":
				return false
			case "":
				return s.bare
			}
			return true
		}
	}
	return false
}

// remotes returns the names of configured remotes, each once, in order.
func (c config) remotes() []string {
	var names []string
	seen := map[string]bool{}
	for i := range c {
		if s := &c[i]; s.section == "remote" && s.sub != "" && !seen[s.sub] {
			seen[s.sub] = true
			names = append(names, s.sub)
		}
	}
	return names
}

// readConfigs reads the configuration of a repository, that of its work tree too
// if it says that there is one.
func (s *server) readConfigs(ctx context.Context, gitDir, common string) (config, error) {
	c, err := s.readConfig(ctx, filepath.Join(common, "config"))
	if err != nil || !c.isTrue("extensions", "", "worktreeconfig") {
		return c, err
	}
	more, err := s.readConfig(ctx, filepath.Join(gitDir, "config.worktree"))
	return append(c, more...), err
}

// readConfig lets git read one file, outside of any repository and without
// following includes, so that there is no second opinion on the syntax. Reading
// configuration runs nothing.
func (s *server) readConfig(ctx context.Context, file string) (config, error) {
	fi, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxFile {
		return nil, fmt.Errorf("reading configuration: %s is not a regular file of at most %d bytes", file, maxFile)
	}
	res, err := s.opt.Run.Run(ctx, Command{
		Argv:      []string{s.opt.Program, "--no-pager", "config", "--file", file, "--no-includes", "--list", "-z"},
		Env:       append(s.environment(reads, noProtocol), "GIT_CEILING_DIRECTORIES=/"),
		Dir:       "/",
		Read:      []string{file},
		MaxOutput: maxOutput,
	})
	if err != nil {
		return nil, fmt.Errorf("running git config: %w", err)
	}
	if res.Code != 0 {
		return nil, &failure{"config", res}
	}
	if res.Truncated {
		return nil, fmt.Errorf("reading configuration: %s is too long", file)
	}
	return parseConfig(string(res.Stdout))
}

// parseConfig reads the output of git config --list -z: "name\nvalue\0", or
// "name\0" for a setting without "=".
func parseConfig(out string) (config, error) {
	var c config
	for _, item := range splitNUL(out) {
		name, value, ok := strings.Cut(item, "\n")
		first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		if first <= 0 || last == len(name)-1 {
			return nil, fmt.Errorf("reading configuration: %q is no setting", name)
		}
		s := setting{section: strings.ToLower(name[:first]), key: strings.ToLower(name[last+1:]), value: value, bare: !ok}
		if last > first {
			s.sub = name[first+1 : last]
		}
		c = append(c, s)
	}
	return c, nil
}
