package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exits is the annotation of a verb that ends with other statuses than those
// every verb has, or gives one of them a meaning of its own.
func exits(own ...status) map[string]string {
	notes := map[string]string{}
	for _, st := range own {
		notes[exitKey(st.code)] = st.means
	}
	return notes
}

func exitKey(code int) string { return "exit " + strconv.Itoa(code) }

// statusesOf returns the exit statuses of c in order.
func statusesOf(c *cobra.Command) []status {
	shared := map[int]string{}
	for _, st := range statuses() {
		shared[st.code] = st.means
	}
	var all []status
	for code := range 256 {
		means, own := c.Annotations[exitKey(code)]
		always := code <= codeUsage || code == codeInterrupted
		if !own && !always {
			continue
		}
		if means == "" {
			means = shared[code]
		}
		all = append(all, status{code, means})
	}
	return all
}

// newHelp is "ringfence help".
func newHelp(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Print the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(about, rest)
			}
			_, err = fmt.Fprint(s.out, helpText(about))
			return err
		},
	}
}

// helpText is the help of c. It ends with the exit statuses.
func helpText(c *cobra.Command) string {
	var b strings.Builder
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	c.InitDefaultHelpFlag()
	flags := flagUsages(c.LocalFlags())
	fmt.Fprintf(&b, "%s\n\nUSAGE\n  %s\n", strings.TrimSpace(about), useLine(c, flags != ""))
	if c.HasExample() {
		fmt.Fprintf(&b, "\nEXAMPLES\n%s\n", strings.TrimRight(c.Example, "\n"))
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCOMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", c.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if flags != "" {
		fmt.Fprintf(&b, "\nFLAGS\n%s", flags)
	}
	fmt.Fprintf(&b, "\nFLAGS OF EVERY COMMAND\n%s", flagUsages(c.Root().PersistentFlags()))
	b.WriteString("\nEXIT STATUS\n")
	for _, st := range statusesOf(c) {
		fmt.Fprintf(&b, "  %3d  %s\n", st.code, st.means)
	}
	return b.String()
}

// flagUsages lists the flags of set, but for --help and those of every command.
func flagUsages(set *pflag.FlagSet) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = true
	persistent := set.Lookup("help") == nil
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && (persistent || f.Name != "json") {
			own.AddFlag(f)
		}
	})
	return own.FlagUsages()
}

// groupOnly is the annotation of a group that does nothing without one of its commands.
const groupOnly = "group"

// useLine is how c is called: of a group, with a command.
func useLine(c *cobra.Command, flags bool) string {
	line := c.Use
	if c.HasParent() {
		line = c.Parent().CommandPath() + " " + line
	}
	if flags {
		line += " [FLAG…]"
	}
	if c.HasAvailableSubCommands() {
		if _, only := c.Annotations[groupOnly]; only {
			return line + " COMMAND"
		}
		line += " [COMMAND]"
	}
	return line
}
