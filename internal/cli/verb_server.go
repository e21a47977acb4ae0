package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/unboxed"
	"ringfence/internal/server/exec"
	"ringfence/internal/server/fetch"
	"ringfence/internal/server/filesystem"
	"ringfence/internal/server/git"
	"ringfence/internal/server/proxy"
	"ringfence/internal/sys/paths"
)

// newServer is "ringfence server", which the mediator runs and nobody types.
func newServer(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:    "server",
		Short:  "Be one of the built-in tool servers, on standard input and output",
		Hidden: true,
	}
	c.AddCommand(
		newBuiltin(s, "filesystem", "Files beneath the roots", func(ctx context.Context, in io.ReadCloser, out io.WriteCloser, roots []string) error {
			return filesystem.Serve(ctx, in, out, filesystem.Options{Roots: roots})
		}),
		newBuiltin(s, "git", "Git in repositories beneath the roots", serveGit),
		newBuiltin(s, "fetch", "Pages of the web", func(ctx context.Context, in io.ReadCloser, out io.WriteCloser, _ []string) error {
			return fetch.Serve(ctx, in, out, fetch.Options{})
		}),
		newBuiltin(s, "proxy", "Connections that an agent asks a person for", func(ctx context.Context, in io.ReadCloser, out io.WriteCloser, _ []string) error {
			return proxy.Serve(ctx, in, out)
		}),
		newBuiltin(s, "exec", "Commands, which the process that runs it has run in boxes", serveExec),
	)
	return c
}

// builtins are the names of the built-in servers.
func builtins() []string { return []string{"exec", "fetch", "filesystem", "git", "proxy"} }

// serveExec hears on descriptor 3 and asks on 4, as package mediator hands them on.
func serveExec(ctx context.Context, in io.ReadCloser, out io.WriteCloser, _ []string) error {
	answers, requests := os.NewFile(3, "answers"), os.NewFile(4, "requests")
	for _, f := range []*os.File{answers, requests} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			return exec.Serve(ctx, in, out, exec.Options{})
		}
	}
	return exec.Serve(ctx, in, out, exec.Options{Requests: requests, Answers: answers})
}

type serve func(ctx context.Context, in io.ReadCloser, out io.WriteCloser, roots []string) error

func newBuiltin(s *streams, name, short string, f serve) *cobra.Command {
	var roots []string
	c := &cobra.Command{
		Use:   name,
		Short: short,
		RunE: func(c *cobra.Command, _ []string) error {
			err := f(c.Context(), io.NopCloser(s.in), noClose{s.out}, roots)
			if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
				return nil // ended by whoever runs us
			}
			return err
		},
	}
	c.Flags().StringArrayVar(&roots, "root", nil, "`DIR` that may be reached; may be repeated")
	return c
}

type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }

// serveGit runs git from the path in boxes of the tier that the engine has for
// now: none. What git may see and do is in the box's description all the same.
func serveGit(ctx context.Context, in io.ReadCloser, out io.WriteCloser, roots []string) error {
	program, err := findProgram("git")
	if err != nil {
		return err
	}
	run := boxed{unboxed.Tier{}}
	name, email, err := identity(ctx, run, program)
	if err != nil {
		return err
	}
	return git.Serve(ctx, in, out, git.Options{
		Roots: roots, Run: run, Program: program, LocalRemotes: true, Name: name, Email: email,
	})
}

// identity is who the person says to git that they are, in their own
// configuration; where that says nothing, their login name on this machine.
func identity(ctx context.Context, run boxed, program string) (name, email string, err error) {
	home, err := paths.UserHome()
	if err != nil {
		return "", "", err
	}
	r, err := run.Run(ctx, git.Command{
		Argv: []string{program, "config", "--global", "--get-regexp", `^user\.(name|email)$`},
		Env:  []string{"HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C.UTF-8"}, Dir: "/", MaxOutput: 4096,
	})
	if err != nil {
		return "", "", fmt.Errorf("asking git who you are: %w", err)
	}
	for line := range strings.Lines(string(r.Stdout)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "user.name":
			name = value
		case "user.email":
			email = value
		}
	}
	login := paths.UserName(uint32(os.Getuid()))
	if name == "" {
		name = login
	}
	if email == "" {
		email = login + "@localhost"
	}
	return name, email, nil
}

// findProgram finds a program of the machine on the search path.
func findProgram(name string) (string, error) {
	for _, dir := range paths.SearchPath() {
		full := filepath.Join(dir, name)
		if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.EvalSymlinks(full)
		}
	}
	return "", fmt.Errorf("%s is not installed: it is in none of the directories of $PATH", name)
}

// boxed is the git.Runner that runs each command in a box of a tier.
type boxed struct{ tier sandbox.Tier }

func (b boxed) Run(ctx context.Context, c git.Command) (git.Result, error) {
	spec := sandbox.Spec{
		Argv: c.Argv, Env: c.Env, Dir: c.Dir, ReadOnly: existing(c.Read), ReadWrite: existing(c.Write),
		Profile: sandbox.ProfileServer, Limits: sandbox.Limits{Output: c.MaxOutput},
	}
	out, err := sandbox.Run(ctx, b.tier, spec, c.Stdin)
	if err != nil {
		return git.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return git.Result{}, err
	}
	return git.Result{Stdout: out.Stdout, Stderr: out.Stderr, Code: out.Exit.Status(), Truncated: out.Dropped > 0}, nil
}

// existing leaves out the paths that are not there yet: a box cannot show them.
func existing(paths []string) []string {
	var there []string
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil {
			there = append(there, p)
		}
	}
	return there
}
