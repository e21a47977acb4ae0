package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringfence/internal/act/display"
	"ringfence/internal/act/strictjson"
)

// unknownCommand is the error of calling the group c with args.
func unknownCommand(c *cobra.Command, args []string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	slices.Sort(names)
	e := &exitError{code: codeUsage, hint: "one of: " + strings.Join(names, ", ")}
	if len(args) == 0 {
		e.err = fmt.Errorf("%q needs a command", c.CommandPath())
		return e
	}
	e.err = fmt.Errorf("%q has no command %q", c.CommandPath(), args[0])
	if near := nearest(args[0], names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q?", c.CommandPath()+" "+near)
	}
	return e
}

// flagError names the flag of c that is nearest to one that does not exist.
func flagError(c *cobra.Command, err error) error {
	e := &exitError{code: codeUsage, err: err, hint: usageHint(c)}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if what := valueOf(wrong.GetFlag()); what != "" {
			e.err = fmt.Errorf("--%s: %q is no %s", wrong.GetFlag().Name, wrong.GetValue(), what)
		} else {
			e.err = fmt.Errorf("--%s: %q: %w", wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
		}
		return e
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return e
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearest(unknown.GetSpecifiedName(), names); near != "" {
		e.hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return e
}

// valueOf says, for people, what a value of the flag f is, "" if its type says that.
func valueOf(f *pflag.Flag) string {
	number := strings.HasPrefix(f.Value.Type(), "int") || strings.HasPrefix(f.Value.Type(), "uint")
	switch unit, _ := pflag.UnquoteUsage(f); {
	case number && unit == "BYTES":
		return "number of bytes, written in digits: 1 GiB is 1073741824"
	case f.Value.Type() == "duration":
		return "time, such as 90s or 5m"
	case number:
		return "number that it can be, written in digits"
	case f.Value.Type() == "bool":
		return "choice: there are true and false"
	}
	return ""
}

// argumentError says which arguments c takes, where it was given others.
func argumentError(c *cobra.Command, args []string) error {
	var takes []string
	for words := strings.Fields(c.Use)[1:]; len(words) > 0; words = words[1:] {
		switch w := words[0]; {
		case w == "[flags]", w == "--":
		case strings.HasPrefix(w, "--") && len(words) > 1: // with its value
			words = words[1:]
		default:
			takes = append(takes, w)
		}
	}
	if len(takes) == 0 {
		return fmt.Errorf("%q takes no arguments, and was given %q", c.CommandPath(), args[0])
	}
	got := "none was"
	if len(args) > 0 {
		got = display.Count(len(args), "was", "were")
	}
	return fmt.Errorf("%q takes %s, and %s given", c.CommandPath(), strings.Join(takes, " "), got)
}

func usageHint(c *cobra.Command) string {
	return fmt.Sprintf("%q shows what is accepted", c.CommandPath()+" --help")
}

// nearest returns the name that word begins, else the one that was probably meant by
// it; "" if none is near.
func nearest(word string, names []string) string {
	for _, n := range names {
		if len(word) > 2 && strings.HasPrefix(n, word) {
			return n
		}
	}
	return strictjson.Nearest(word, names)
}
