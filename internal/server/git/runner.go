package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Command is one run of git: everything a box needs to know.
type Command struct {
	Argv    []string // Argv[0] is Options.Program
	Env     []string // the whole environment
	Dir     string   // working directory, absolute
	Stdin   []byte
	Read    []string // files and directories that must be readable
	Write   []string // directories that must be writable; they may not exist yet
	Network bool     // a remote is contacted
	// MaxOutput is how many bytes of standard output are wanted. The Runner drops
	// the rest and goes on reading.
	MaxOutput int64
}

// A Result is how a Command ended.
type Result struct {
	Stdout, Stderr []byte
	Code           int  // exit status
	Truncated      bool // Stdout is not all there was
}

// A Runner runs programs. A program that ends with a status other than 0 is no
// error; an error means that it did not run, or was ended before its own end.
type Runner interface {
	Run(context.Context, Command) (Result, error)
}

// access is what a command does.
type access int

const (
	reads access = iota
	writes
	contacts // a remote; writes too
)

// devNull takes the place of a file or program that must not be.
const devNull = os.DevNull

// environment is that of every git we run. It says what has no command line
// option, and, for what has both, what must win over the repository: environment
// beats configuration.
func (s *server) environment(a access, protocols string) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/nonexistent",
		"XDG_CONFIG_HOME=/nonexistent",
		"LC_ALL=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=" + devNull,
		"GIT_CONFIG_GLOBAL=" + devNull,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=" + devNull,
		"SSH_ASKPASS=" + devNull,
		"GIT_EDITOR=:", // git knows this one and starts nothing
		"GIT_SEQUENCE_EDITOR=:",
		"GIT_MERGE_AUTOEDIT=no",
		"GIT_PAGER=cat",
		"GIT_PROXY_COMMAND=",
		"GIT_SSH_VARIANT=ssh",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes -oPermitLocalCommand=no -oForwardAgent=no -oForwardX11=no -oClearAllForwardings=yes",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_ADVICE=0",
		"GIT_ALLOW_PROTOCOL=" + protocols,
	}
	switch a {
	case reads:
		env = append(env, "GIT_OPTIONAL_LOCKS=0")
	case writes:
	case contacts:
		env = append(env, s.opt.RemoteEnv...)
	}
	return env
}

// noProtocol names no transport, so git refuses them all. An empty list would do in
// git's source, but looks like a forgotten one.
const noProtocol = "none"

// A failure is git saying no.
type failure struct {
	what   string // "log"
	result Result
}

func (f *failure) Error() string {
	text := strings.TrimSpace(string(f.result.Stderr))
	if text == "" {
		text = strings.TrimSpace(string(f.result.Stdout))
	}
	if len(text) > 4096 {
		text = text[:4096] + " …"
	}
	return fmt.Sprintf("git %s failed with status %d: %s", f.what, f.result.Code, strings.ToValidUTF8(text, "\uFFFD"))
}

// errTooLong is returned in place of a list that would be incomplete.
var errTooLong = fmt.Errorf("the answer has more than %d bytes; ask for less", int(maxOutput))

// exec runs git in r. args begin with the subcommand.
func (r *repo) exec(ctx context.Context, a access, stdin string, args ...string) (Result, error) {
	protocols := noProtocol
	if a == contacts {
		protocols = r.s.protocols()
	}
	env := append(r.s.environment(a, protocols), "GIT_DIR="+r.gitDir, "GIT_COMMON_DIR="+r.common)
	if r.top != "" {
		env = append(env, "GIT_WORK_TREE="+r.top)
	}
	c := Command{
		Argv:      slices.Concat([]string{r.s.opt.Program, "--no-pager"}, r.settings, args),
		Env:       env,
		Dir:       r.home(),
		Stdin:     []byte(stdin),
		Read:      r.places(),
		Network:   a == contacts,
		MaxOutput: maxOutput,
	}
	if a != reads {
		c.Write = r.places()
	}
	return r.s.opt.Run.Run(ctx, c)
}

// run is exec for commands whose failure is the caller's, and whose output is
// wanted whole.
func (r *repo) run(ctx context.Context, a access, args ...string) (string, error) {
	res, err := r.exec(ctx, a, "", args...)
	if err != nil {
		return "", fmt.Errorf("running git %s: %w", args[0], err)
	}
	if res.Code != 0 {
		return "", &failure{args[0], res}
	}
	if res.Truncated {
		return "", errTooLong
	}
	return string(res.Stdout), nil
}

// line is run for commands that answer with one line.
func (r *repo) line(ctx context.Context, args ...string) (string, error) {
	out, err := r.run(ctx, reads, args...)
	return strings.TrimSpace(out), err
}

// list is run for commands that answer with items that end in a NUL.
func (r *repo) list(ctx context.Context, args ...string) ([]string, error) {
	out, err := r.run(ctx, reads, args...)
	return splitNUL(out), err
}

func splitNUL(out string) []string {
	if out == "" {
		return []string{}
	}
	items := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for i := range items {
		items[i] = strings.ToValidUTF8(items[i], "\uFFFD")
	}
	return items
}

// content is run for what is returned as it is, up to maxContent bytes.
func (r *repo) content(ctx context.Context, args ...string) (string, error) {
	res, err := r.exec(ctx, reads, "", args...)
	if err != nil {
		return "", fmt.Errorf("running git %s: %w", args[0], err)
	}
	if res.Code != 0 {
		return "", &failure{args[0], res}
	}
	return bounded(res), nil
}

func bounded(res Result) string {
	text := res.Stdout
	cut := res.Truncated
	if len(text) > maxContent {
		text, cut = text[:maxContent], true
	}
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	if cut {
		s += fmt.Sprintf("\n[cut short after %d bytes]\n", len(text))
	}
	return s
}

// failedWith reports whether err is git ending with status code.
func failedWith(err error, code int) bool {
	var f *failure
	return errors.As(err, &f) && f.result.Code == code
}
