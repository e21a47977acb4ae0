package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

type remoteArgs struct {
	Path    string `json:"path"`
	Mode    string `json:"mode"`
	Name    string `json:"name"`
	URL     string `json:"url"`
	NewName string `json:"newName"`
	Push    bool   `json:"push"`
}

type remoteEntry struct {
	Name     string `json:"name"`
	FetchURL string `json:"fetchUrl"`
	PushURL  string `json:"pushUrl"`
}

type added struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

type remoteResult struct {
	Success bool           `json:"success"`
	Mode    string         `json:"mode"`
	Remotes *[]remoteEntry `json:"remotes,omitempty"`
	URL     string         `json:"url,omitempty"`
	Added   *added         `json:"added,omitempty"`
	Removed string         `json:"removed,omitempty"`
	Renamed *moved         `json:"renamed,omitempty"`
}

func (s *server) remote(ctx context.Context, in remoteArgs) (remoteResult, error) {
	mode, err := oneOf("mode", in.Mode, "list", "add", "remove", "rename", "get-url", "set-url")
	if err != nil {
		return remoteResult{}, err
	}
	out := remoteResult{Success: true, Mode: mode}
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return out, err
	}
	if mode == "list" {
		list := r.config.remoteList()
		out.Remotes = &list
		return out, nil
	}
	name, err := branchName("name", in.Name, "")
	if err != nil {
		return out, err
	}
	if mode != "add" && !slices.Contains(r.config.remotes(), name) {
		return out, fmt.Errorf("there is no remote %q; there are: %s", name, strings.Join(r.config.remotes(), ", "))
	}
	args := []string{"remote"}
	switch mode {
	case "get-url":
		if urls := r.config.urls(name, in.Push); len(urls) > 0 {
			out.URL = urls[0]
			return out, nil
		}
		return out, fmt.Errorf("the remote %s has no URL", name)
	case "add", "set-url":
		if _, err := s.remoteURL(in.URL, r.dir); err != nil {
			return out, err
		}
		args = append(args, mode)
		args = append(args, when(mode == "set-url" && in.Push, "--push")...)
		args = append(args, "--end-of-options", name, in.URL)
		if mode == "add" {
			out.Added = &added{name, in.URL}
		}
	case "remove":
		out.Removed = name
		args = append(args, "remove", "--end-of-options", name)
	case "rename":
		fresh, err := branchName("newName", in.NewName, "")
		if err != nil {
			return out, err
		}
		out.Renamed = &moved{name, fresh}
		args = append(args, "rename", "--no-progress", "--end-of-options", name, fresh)
	}
	_, err = r.run(ctx, writes, args...)
	return out, err
}

func (c config) remoteList() []remoteEntry {
	list := []remoteEntry{}
	for _, n := range c.remotes() {
		fetch, push := c.urls(n, false), c.urls(n, true)
		if len(fetch) > 0 || len(push) > 0 {
			list = append(list, remoteEntry{n, strings.Join(fetch, " "), strings.Join(push, " ")})
		}
	}
	return list
}

type cloneArgs struct {
	URL    string `json:"url"`
	Path   string `json:"path"`
	Branch string `json:"branch"`
	Depth  *int   `json:"depth"`
	Bare   bool   `json:"bare"`
	Mirror bool   `json:"mirror"`
}

type cloneResult struct {
	Success bool   `json:"success"`
	URL     string `json:"remoteUrl"`
	Path    string `json:"path"`
	Branch  string `json:"branch"`
	Hash    string `json:"commitHash,omitempty"`
}

func (s *server) clone(ctx context.Context, in cloneArgs) (cloneResult, error) {
	u, err := s.remoteURL(in.URL, s.workingDir())
	if err != nil {
		return cloneResult{}, err
	}
	dir, err := s.newDir(in.Path)
	if err != nil {
		return cloneResult{}, err
	}
	depth, err := between("depth", in.Depth, 0, 1, 1<<30)
	if err == nil && in.Branch != "" {
		in.Branch, err = branchName("branch", strings.TrimPrefix(in.Branch, tags), heads)
	}
	if err != nil {
		return cloneResult{}, err
	}
	args := []string{"clone", "--template=", "--no-recurse-submodules", "--no-hardlinks", "--origin=origin", "--no-progress"}
	args = append(args, s.far(u, "--upload-pack", "upload-pack")...)
	args = append(args, when(in.Branch != "", "--branch="+in.Branch)...)
	args = append(args, when(depth > 0, fmt.Sprintf("--depth=%d", depth))...)
	args = append(args, when(in.Bare, "--bare")...)
	args = append(args, when(in.Mirror, "--mirror")...)
	if err := s.outside(ctx, contacts, dir, append(args, "--end-of-options", u, dir)); err != nil {
		return cloneResult{}, err
	}
	r, err := s.open(ctx, dir)
	if err != nil {
		return cloneResult{}, err
	}
	out := cloneResult{Success: true, URL: in.URL, Path: dir}
	if out.Branch, err = r.current(ctx); err != nil {
		return out, err
	}
	out.Hash, err = r.commitID(ctx, "HEAD")
	return out, err
}

// newDir returns the real path of a directory that does not exist or is empty.
func (s *server) newDir(path string) (string, error) {
	if path == "" {
		return "", errors.New("path is required")
	}
	dir, err := s.fresh(path)
	if err != nil {
		return "", err
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return "", fmt.Errorf("%s exists and is not empty", dir)
	}
	return dir, nil
}

// outside runs a git that makes a repository in dir.
func (s *server) outside(ctx context.Context, a access, dir string, args []string) error {
	argv := []string{s.opt.Program, "--no-pager"}
	for _, set := range always {
		argv = append(argv, "-c", set)
	}
	protocols := noProtocol
	if a == contacts {
		protocols = s.protocols()
	}
	c := Command{
		Argv: append(append(argv, "-c", "safe.directory="+dir), args...), Env: s.environment(a, protocols),
		Dir: s.roots[0], Read: s.roots, Write: []string{dir}, Network: a == contacts, MaxOutput: maxOutput,
	}
	res, err := s.opt.Run.Run(ctx, c)
	if err != nil {
		return fmt.Errorf("running git %s: %w", args[0], err)
	}
	if res.Code != 0 {
		return &failure{args[0], res}
	}
	return nil
}
