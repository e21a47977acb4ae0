package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/daemon/api"
)

// topEvery is how often "net top" draws.
const topEvery = time.Second

func newNetTop(s *streams) *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "top [SESSION]",
		Short: "Show what a session, or all, reach on the network, the busiest first",
		Long: "Show for each host, registry and model what was allowed and denied and how much was\n" +
			"carried. In a terminal it goes on until ^C; otherwise, and with --once or --json, it\n" +
			"prints what is on record and ends.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := api.LedgerQuery{Follow: !once && !s.json && s.out.onTerminal()}
			if len(args) == 1 {
				q.Session = args[0]
			}
			return with(c.Context(), connect, func(e *api.Client) error { return s.top(c.Context(), e, q) })
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print what is on record and end")
	return c
}

// top reads the record and shows it.
func (s *streams) top(ctx context.Context, e *api.Client, q api.LedgerQuery) error {
	t := &netTop{log: netLog{asked: map[string][]netLine{}, open: map[string]bool{}}, by: map[string]*topRow{}, of: map[string]string{}}
	if !q.Follow {
		if err := sessionHint(e.LedgerEntries(ctx, q, t.take)); err != nil {
			return err
		}
		rows := t.rows()
		return s.value(rows, func() string { return topText(rows) })
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var drawn sync.WaitGroup
	drawn.Go(func() {
		tick := time.NewTicker(topEvery)
		defer tick.Stop()
		for {
			_, err := io.WriteString(s.out, "\x1b[H\x1b[2J"+printable(topText(t.rows())))
			if err != nil {
				cancel() // nobody sees it
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	err := sessionHint(e.LedgerEntries(ctx, q, t.take))
	cancel()
	drawn.Wait()
	return err
}

// A topRow is what is known of one host, package registry or provider.
type topRow struct {
	To       string `json:"to"`
	Allowed  int    `json:"allowed"`
	Denied   int    `json:"denied"`
	Sent     int64  `json:"sent"` // bytes from boxes
	Received int64  `json:"received"`
	Tokens   int64  `json:"tokens,omitempty"`    // of models
	MicroUSD int64  `json:"micro_usd,omitempty"` // millionths of a dollar
	Last     string `json:"last"`                // time of the newest entry
}

// netTop adds up what entries say.
type netTop struct {
	mu  sync.Mutex
	log netLog
	by  map[string]*topRow
	of  map[string]string // ticket that is open → row
}

func (t *netTop) take(raw json.RawMessage) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, err := t.log.take(raw)
	if line == nil || err != nil {
		return err
	}
	if line.Verdict == "" {
		t.carried(line)
		return nil
	}
	to := topOf(line.Effects)
	row := t.by[to]
	if row == nil {
		row = &topRow{To: to}
		t.by[to] = row
	}
	row.Last = line.Time
	if line.Verdict == act.Allow.String() {
		row.Allowed++
		t.of[line.Ticket] = to
		return nil
	}
	row.Denied += 1 + line.Repeated
	return nil
}

// carried adds what was carried for a ticket.
func (t *netTop) carried(line *netLine) {
	row := t.by[t.of[line.Ticket]]
	delete(t.of, line.Ticket)
	var c struct {
		Sent     int64 `json:"sent"`
		Received int64 `json:"received"`
		MicroUSD int64 `json:"micro_usd"`
		Usage    struct {
			Input, Output int64
			CacheRead     int64 `json:"cache_read"`
			CacheWrite    int64 `json:"cache_write"`
		} `json:"usage"`
	}
	if row == nil || json.Unmarshal(line.Carried, &c) != nil {
		return
	}
	row.Last = line.Time
	row.Sent, row.Received, row.MicroUSD = row.Sent+c.Sent, row.Received+c.Received, row.MicroUSD+c.MicroUSD
	row.Tokens += c.Usage.Input + c.Usage.Output + c.Usage.CacheRead + c.Usage.CacheWrite
}

// topOf is the row that effects belong to: the model or the registry, else the host.
func topOf(effects []string) string {
	host := ""
	for _, e := range effects {
		kind, text, _ := strings.Cut(e, " ")
		k := act.Kind(kind)
		if k == act.Infer {
			return "model " + text
		}
		if k == act.Install {
			registry, _, _ := strings.Cut(text, ":")
			return registry + " packages"
		}
		if u, err := weburl.Parse(text); err == nil && k.On() == act.URL {
			host = u.HostPort()
		}
		if k.On() == act.Host {
			host = cmp.Or(host, text)
		}
	}
	return cmp.Or(host, "other")
}

// rows are those of the table, what was carried most first.
func (t *netTop) rows() []topRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]topRow, 0, len(t.by))
	for _, r := range t.by {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(b.Allowed+b.Denied, a.Allowed+a.Denied), strings.Compare(a.To, b.To))
	})
	return rows
}

// topText is the table for people.
func topText(rows []topRow) string {
	if len(rows) == 0 {
		return "Nothing was asked of the network.\n"
	}
	cells := [][]string{{"TO", "ALLOWED", "DENIED", "OUT", "IN", "TOKENS", "USD", "LAST"}}
	for _, r := range rows {
		usd := "-"
		if r.MicroUSD > 0 {
			usd = fmt.Sprintf("%.4f", float64(r.MicroUSD)/1e6)
		}
		cells = append(cells, []string{
			r.To, strconv.Itoa(r.Allowed), strconv.Itoa(r.Denied), bytesText(r.Sent), bytesText(r.Received), strconv.FormatInt(r.Tokens, 10), usd, r.Last,
		})
	}
	wide := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, c := range row {
			wide[i] = max(wide[i], len(c))
		}
	}
	var b strings.Builder
	for _, row := range cells {
		for i, c := range row {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", wide[i-1]-len(row[i-1])+2))
			}
			b.WriteString(c)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bytesText is a number of bytes as people read it.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1fM", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1fK", float64(n)/(1<<10))
	}
	return fmt.Sprint(n)
}
