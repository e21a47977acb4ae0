package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act/loan"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/pty"
)

// newSecret is "ringfence secret".
func newSecret(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "Keep keys that boxes use and never see",
		Long: "Keep keys that boxes use and never see. A box has a text of the same shape in the\n" +
			"place of each; on the way out it is put right, for the host that the key is bound\n" +
			"to and for no other.",
	}
	c.AddCommand(newSecretSet(s), newSecretList(s), newSecretRemove(s))
	return c
}

// secretFlags say where a secret may go.
type secretFlags struct {
	hosts, methods, env       []string
	port                      uint16
	scheme, path              string
	header, form, user, query string
	basic                     bool
}

func newSecretSet(s *streams) *cobra.Command {
	var f secretFlags
	c := &cobra.Command{
		Use:   "set NAME [--host HOST]",
		Short: "Keep a secret, and say where it may go",
		Long: "Keep a secret, in the place of one of that name, and say where it may go. Its value\n" +
			"is asked for at the terminal, or is the first line of the standard input; it is\n" +
			"never an argument, which other programs can read.\n\n" +
			"The names anthropic, openai and google are bound to their providers without more.\n" +
			"A secret that is bound to no host is never lent, and still kept out of the record.",
		Example: "  ringfence secret set anthropic\n" +
			"  ringfence secret set github --host github.com --basic --env GITHUB_TOKEN\n" +
			"  pass show tracker | ringfence secret set tracker --host api.tracker.example --path /v2 --header x-api-key",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return setSecret(c.Context(), s, f, args[0]) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.hosts, "host", nil, "`HOST` that it may be sent to; may be repeated")
	fl.Uint16Var(&f.port, "port", 0, "`PORT` of the host (default: that of the scheme)")
	fl.StringVar(&f.scheme, "scheme", "https", "https; or http, where anybody on the way can read it")
	fl.StringArrayVar(&f.methods, "method", nil, "`METHOD` that may carry it, such as GET; may be repeated (default: all)")
	fl.StringVar(&f.path, "path", "", "`PREFIX` of the paths that it may be sent to (default: all)")
	fl.StringArrayVar(&f.env, "env", nil, "`VARIABLE` of the environment in which boxes find what stands for it; may be repeated")
	fl.StringVar(&f.header, "header", "", "`NAME` of the header that it goes into (default: authorization)")
	fl.StringVar(&f.form, "form", "", "`FORM` of that header, with {} for the secret (default: \"Bearer {}\" in authorization, else \"{}\")")
	fl.BoolVar(&f.basic, "basic", false, "it is the password of whichever user the program sends (\"Basic\")")
	fl.StringVar(&f.user, "user", "", "it is the password of `USER` (\"Basic\")")
	fl.StringVar(&f.query, "query", "", "`NAME` of the parameter of the query that it goes into, in place of a header")
	return c
}

// bindings are the places that f names; those of a provider, as configured, if it names none.
func (f secretFlags) bindings(name string) (env []string, out []loan.Binding, err error) {
	wrong := func(format string, a ...any) (env []string, out []loan.Binding, err error) {
		return nil, nil, &exitError{code: codeUsage, err: fmt.Errorf(format, a...)}
	}
	if f.scheme != "https" && f.scheme != "http" {
		return wrong("no scheme %q; there are https and http", f.scheme)
	}
	if f.basic || f.user != "" {
		if f.form != "" || f.header != "" || f.query != "" {
			return wrong("--basic and --user say all of the header; leave --header, --form and --query out")
		}
		f.form = "Basic {}"
	}
	if len(f.hosts) == 0 {
		if f.port != 0 || f.path != "" || len(f.methods) > 0 || f.header != "" || f.form != "" || f.query != "" || f.scheme == "http" {
			return wrong("say with --host where the secret may go")
		}
		conf, _, err := settings()
		if err != nil {
			return nil, nil, err
		}
		for _, p := range conf.Models.Keyed() {
			if p.Name == name {
				return slices.Concat(p.Variables, p.Shown), p.Bindings, nil
			}
		}
	}
	for _, h := range f.hosts {
		b, err := loan.Binding{
			Host: h, Port: f.port, Plain: f.scheme == "http", Methods: f.methods, Prefix: f.path,
			Position: loan.Position{Header: f.header, Form: f.form, User: f.user, Query: f.query},
		}.Canonical()
		if err != nil {
			return wrong("%w", err)
		}
		out = append(out, b)
	}
	return nil, out, nil
}

func setSecret(ctx context.Context, s *streams, f secretFlags, name string) error {
	if err := loan.CheckName(name); err != nil {
		return &exitError{code: codeUsage, err: err}
	}
	env, bindings, err := f.bindings(name)
	if err != nil {
		return err
	}
	if len(f.env) > 0 {
		env = f.env
	}
	for _, v := range env {
		if err := loan.CheckEnv(v); err != nil {
			return &exitError{code: codeUsage, err: err}
		}
	}
	value, err := s.readSecret(ctx, name)
	if err != nil {
		return err
	}
	defer clear(value)
	info := api.SecretInfo{Name: name, Env: env, Bindings: bindings}
	return with(ctx, connect, func(e *api.Client) error {
		if err := e.SetSecret(ctx, info, value); err != nil {
			return err
		}
		return s.value(info, func() string { return secretText(info) })
	})
}

// maxTyped is more than any secret has, in bytes.
const maxTyped = 64 << 10

// readSecret reads one line: typed at the terminal, or the first of the standard input.
func (s *streams) readSecret(ctx context.Context, name string) ([]byte, error) {
	if s.typed() {
		return pty.ReadSecret(ctx, fmt.Sprintf("Value of %s (it is not shown): ", name))
	}
	data, err := io.ReadAll(io.LimitReader(s.in, maxTyped))
	if err != nil {
		return nil, fmt.Errorf("reading the value: %w", err)
	}
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	if len(bytes.TrimSpace(rest)) > 0 {
		clear(data)
		return nil, &exitError{code: codeUsage, err: errors.New("the standard input has more than one line"), hint: "no header can hold a secret of several lines"}
	}
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// secretText is what people read of one secret.
func secretText(i api.SecretInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", i.Name)
	for _, bound := range i.Bindings {
		fmt.Fprintf(&b, "  to   %s\n", bound)
	}
	if len(i.Bindings) == 0 {
		b.WriteString("  to   nothing: it is never lent, and kept out of the record\n")
	}
	if len(i.Env) > 0 {
		fmt.Fprintf(&b, "  in   %s\n", strings.Join(i.Env, ", "))
	}
	if !i.Set.IsZero() {
		fmt.Fprintf(&b, "  set  %s\n", i.Set.Format(time.DateOnly))
		used := "never"
		if !i.Used.IsZero() {
			used = i.Used.Format(time.RFC3339)
		}
		fmt.Fprintf(&b, "  used %s\n", used)
	}
	return b.String()
}

func newSecretList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the secrets that are kept, without their values",
		RunE: func(c *cobra.Command, _ []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				l, err := e.Secrets(c.Context())
				if err != nil {
					return err
				}
				return s.value(l, func() string {
					var b strings.Builder
					for _, i := range l.Secrets {
						b.WriteString(secretText(i))
					}
					if len(l.Secrets) == 0 {
						return "No secrets are kept.\n"
					}
					fmt.Fprintf(&b, "\nKept in %s.\n", l.Protection)
					return b.String()
				})
			})
		},
	}
}

func newSecretRemove(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Forget a secret",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				err := e.RemoveSecret(c.Context(), args[0])
				if errors.Is(err, api.ErrNotFound) {
					return &exitError{code: codeFailed, err: fmt.Errorf("there is no secret %q", args[0]), hint: "\"ringfence secret list\" prints the names"}
				}
				if err != nil {
					return err
				}
				return s.value(map[string]any{"removed": args[0]}, func() string { return "Forgotten.\n" })
			})
		},
	}
}
