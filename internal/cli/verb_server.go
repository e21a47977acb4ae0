package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"ringfence/internal/sandbox/unboxed"
	"ringfence/internal/server/fetch"
	"ringfence/internal/server/filesystem"
	"ringfence/internal/server/git"
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
	)
	return c
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

func serveGit(ctx context.Context, in io.ReadCloser, out io.WriteCloser, roots []string) error {
	return git.Serve(ctx, in, out, git.Options{Roots: roots, Tier: unboxed.Tier{}})
}
