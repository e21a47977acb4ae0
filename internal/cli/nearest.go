package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
