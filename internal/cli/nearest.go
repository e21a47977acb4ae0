package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// nearest returns the name that word begins, else the one that the fewest edits
// lead to from word, if these are at most a third of its letters; else "".
func nearest(word string, names []string) string {
	best, least := "", 0
	for _, n := range names {
		if len(word) > 2 && strings.HasPrefix(n, word) {
			return n
		}
		d := distance(word, n)
		if d <= (len(n)+2)/3 && (best == "" || d < least) {
			best, least = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
