package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/config"
	"ringfence/internal/daemon/statistics"
	"ringfence/internal/sys/database"
	"ringfence/internal/sys/paths"
)

// newStatistics is "ringfence statistics".
func newStatistics(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "statistics",
		Short: "See how much agents used of models, and delete that",
		Long: "Of every request to a model it is counted how many tokens it used, what they cost, how\n" +
			"long it took and how it ended: numbers and names, nothing that was said. They are kept\n" +
			"for 90 days (\"statistics.days\" in config.json), or not at all (\"statistics.off\").",
	}
	c.AddCommand(newStatisticsShow(s), newStatisticsDelete(s))
	return c
}

func newStatisticsShow(s *streams) *cobra.Command {
	var by, session string
	var days number
	c := &cobra.Command{
		Use:   "show",
		Short: "Sum up what was used, by model, session, persona, agent or day",
		Long: "Sum up what was used. Days are those of UTC; tokens that were read from a cache of the\n" +
			"provider are not in those of the input. A cost with a + is more than that: of some models\n" +
			"no price is known.",
		RunE: func(c *cobra.Command, _ []string) error {
			if groups := statistics.Groups(); !slices.Contains(groups, by) {
				hint := "there are " + strings.Join(groups, ", ")
				if near := nearest(by, groups); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				return &exitError{code: codeUsage, err: fmt.Errorf("--by %q: statistics are not kept by that", by), hint: hint}
			}
			home, kept, err := statisticsHome()
			if err != nil {
				return err
			}
			if days > 0 {
				kept = min(kept, int(days))
			}
			q := statistics.Query{By: by, Session: session, Since: time.Now().AddDate(0, 0, -kept)}
			rows, err := statistics.Show(c.Context(), paths.StatisticsFile(home), q)
			if err != nil {
				return brokenStatistics(err, home)
			}
			if rows == nil {
				rows = []statistics.Row{}
			}
			return s.value(rows, func() string { return statisticsText(by, rows) })
		},
	}
	c.Flags().StringVar(&by, "by", "model", "sum up by `WHAT`: "+strings.Join(statistics.Groups(), ", "))
	c.Flags().StringVar(&session, "session", "", "only of this `SESSION`")
	c.Flags().Var(&days, "days", "only of the last `N` days")
	return c
}

// statisticsHome returns the home, and how many days are kept there.
func statisticsHome() (home string, days int, err error) {
	if home, err = paths.EnsureHome(); err != nil {
		return "", 0, err
	}
	conf, _, err := config.Load(home)
	return home, conf.StatisticsDays, err
}

// brokenStatistics says what can be done about a file that cannot be read.
func brokenStatistics(err error, home string) error {
	if !errors.Is(err, database.ErrDamaged) {
		return err
	}
	return &exitError{code: codeFailed, err: err, hint: "nothing depends on it: remove " + paths.StatisticsFile(home) + ", and a new one is begun"}
}

func statisticsText(by string, rows []statistics.Row) string {
	if len(rows) == 0 {
		return "No model was asked.\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "requests\tnot answered\tdenied\tinput\tcached\toutput\tdollars\tmedian\t95%%\t  %s\n", by)
	for _, r := range rows {
		more := " "
		if r.Unpriced > 0 {
			more = "+"
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%.4f%s\t%s\t%s\t  %s\n", r.Requests, r.Cut+r.Failed, r.Denied, r.Input+r.CacheWrite, r.CacheRead, r.Output,
			float64(r.MicroUSD)/1e6, more, inSeconds(r.MedianMS), inSeconds(r.P95MS), r.Name)
	}
	_ = w.Flush() // into memory
	return b.String()
}

func inSeconds(ms int64) string { return fmt.Sprintf("%.1fs", float64(ms)/1000) }

func newStatisticsDelete(s *streams) *cobra.Command {
	var session, before string
	c := &cobra.Command{
		Use:   "delete",
		Short: "Delete what was counted: all of it, of a session, or what is older than a day",
		RunE: func(c *cobra.Command, _ []string) error {
			what := statistics.Selection{Session: session}
			if before != "" {
				var err error
				if what.Before, err = time.Parse(time.DateOnly, before); err != nil {
					return &exitError{code: codeUsage, err: fmt.Errorf("--before %q is no day: write it as 2026-01-31", before)}
				}
			}
			home, _, err := statisticsHome()
			if err != nil {
				return err
			}
			n, err := statistics.Delete(c.Context(), paths.StatisticsFile(home), what)
			if err != nil {
				return brokenStatistics(err, home)
			}
			return s.value(map[string]int64{"deleted": n}, func() string { return "Deleted: " + display.Count(n, "request", "requests") + ".\n" })
		},
	}
	c.Flags().StringVar(&session, "session", "", "only of this `SESSION`")
	c.Flags().StringVar(&before, "before", "", "only what was over before this `DAY` of UTC, such as 2026-01-31")
	return c
}
