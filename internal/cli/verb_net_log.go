package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
)

func newNetLog(s *streams) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "log [SESSION]",
		Short: "Print what a session, or all, asked of the network, and what was carried",
		Long: "Print each decision about the network, oldest first, and what was carried for it once\n" +
			"that is known: the status of HTTP, bytes from the box and to it, and how long it took.\n" +
			"With --json each line is one decision or one result.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := api.LedgerQuery{Follow: follow}
			if len(args) == 1 {
				q.Session = args[0]
			}
			l := &netLog{asked: map[string][]netLine{}, open: map[string]bool{}}
			return with(c.Context(), connect, func(e *api.Client) error {
				printed := false
				err := sessionHint(e.LedgerEntries(c.Context(), q, func(raw json.RawMessage) error {
					line, err := l.take(raw)
					if line == nil || err != nil {
						return err
					}
					printed = true
					return l.print(s, *line)
				}))
				if err == nil && !printed && !s.json {
					_, err = io.WriteString(s.out, "Nothing was asked of the network.\n")
				}
				return err
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	return c
}

// A netLine is one decision about the network, or one result.
type netLine struct {
	Time     string          `json:"time"`
	Ticket   string          `json:"ticket"` // of the decision
	Verdict  string          `json:"verdict,omitempty"`
	Effects  []string        `json:"effects,omitempty"` // as people read them
	Via      string          `json:"via,omitempty"`
	Repeated int             `json:"repeated,omitempty"` // equal requests that were denied since, without being decided
	Rules    []string        `json:"rules,omitempty"`
	Code     act.Code        `json:"code,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Carried  json.RawMessage `json:"carried,omitempty"` // of a result
	Error    string          `json:"error,omitempty"`
}

// A netLog puts together what entries say of one request.
type netLog struct {
	last  netLine              // the request that was read just now
	asked map[string][]netLine // by session, requests that people are asked about
	open  map[string]bool      // tickets that were allowed
}

// netEntry is what is read of entries.
type netEntry struct {
	Session string `json:"session"`
	Seq     int64  `json:"seq"`
	Time    string `json:"time"`
	Type    string `json:"type"`
	Body    struct {
		Verb      act.Verb        `json:"verb"`
		Arguments string          `json:"arguments"`
		Effects   []act.Effect    `json:"effects"`
		Verdict   string          `json:"verdict"`
		Code      act.Code        `json:"code"`
		Rules     []string        `json:"rules"`
		Reason    string          `json:"reason"`
		Ticket    string          `json:"ticket"`
		Error     string          `json:"error"`
		Carried   json.RawMessage `json:"carried"`
	} `json:"body"`
}

// take reads one entry; nil if there is nothing to print.
func (l *netLog) take(raw []byte) (*netLine, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("reading an entry: %w", err)
	}
	switch kind.Type {
	case gate.EntryRequest, gate.EntryQuestion, gate.EntryAnswer, gate.EntryDecision, gate.EntryResult:
	default:
		return nil, nil
	}
	var e netEntry
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("reading an entry: %w", err)
	}
	switch e.Type {
	case gate.EntryRequest:
		l.last = requested(e)
	case gate.EntryQuestion: // what follows comes when somebody has answered
		l.asked[e.Session] = append(l.asked[e.Session], l.last)
		l.last = netLine{}
	case gate.EntryAnswer:
		if waiting := l.asked[e.Session]; len(waiting) > 0 {
			l.last, l.asked[e.Session] = waiting[0], waiting[1:]
		}
	case gate.EntryDecision:
		return l.decided(e), nil
	case gate.EntryResult:
		if l.open[e.Body.Ticket] {
			delete(l.open, e.Body.Ticket)
			return &netLine{Time: e.Time, Ticket: e.Body.Ticket, Carried: e.Body.Carried, Error: e.Body.Error}, nil
		}
	}
	return nil, nil
}

// requested is what a request entry says, without effects if it is none about the network.
func requested(e netEntry) netLine {
	var line netLine
	if e.Body.Verb != act.VerbEffect && e.Body.Verb != act.VerbOffers {
		return line
	}
	for _, f := range e.Body.Effects {
		if f.Is(act.RemoteGroup) || f.Kind == act.UseSecret {
			line.Effects = append(line.Effects, f.String())
		}
	}
	var args struct {
		Via      string `json:"via"`
		Repeated int    `json:"repeated"`
	}
	if json.Unmarshal([]byte(e.Body.Arguments), &args) == nil { // else they were too long to be kept
		line.Via, line.Repeated = args.Via, args.Repeated
	}
	return line
}

func (l *netLog) decided(e netEntry) *netLine {
	line := l.last
	l.last = netLine{}
	if len(line.Effects) == 0 {
		return nil
	}
	line.Time, line.Ticket = e.Time, fmt.Sprintf("%s/%d", e.Session, e.Seq)
	line.Verdict, line.Rules, line.Code, line.Reason = e.Body.Verdict, e.Body.Rules, e.Body.Code, e.Body.Reason
	if line.Verdict == act.Allow.String() {
		l.open[line.Ticket] = true
	}
	return &line
}

// print writes one line.
func (l *netLog) print(s *streams, line netLine) error {
	if s.json {
		raw, err := json.Marshal(line)
		if err != nil {
			return fmt.Errorf("encoding a line: %w", err)
		}
		if s.out.onTerminal() {
			raw = desk.EscapeJSON(raw) // the same value in other bytes
		}
		_, err = fmt.Fprintf(s.out, "%s\n", raw)
		return err
	}
	_, err := io.WriteString(s.out, printable(line.text()))
	return err
}

// text is line for people.
func (line netLine) text() string {
	if line.Verdict == "" {
		return fmt.Sprintf("%s %s %s\n", line.Time, line.Ticket, carriedText(line.Carried, line.Error))
	}
	text := fmt.Sprintf("%s %s %s %s", line.Time, line.Ticket, line.Verdict, strings.Join(line.Effects, ", "))
	if line.Via != "" {
		text += " by " + line.Via
	}
	if line.Repeated > 0 {
		text += " " + display.Count(line.Repeated, "more time", "more times")
	}
	if len(line.Rules) > 0 {
		text += " (" + strings.Join(line.Rules, ", ") + ")"
	}
	return text + "\n"
}

// carriedText says what was carried.
func carriedText(raw json.RawMessage, failed string) string {
	var c struct {
		Status   int    `json:"status"`
		Sent     int64  `json:"sent"`
		Received int64  `json:"received"`
		Millis   int64  `json:"ms"`
		Address  string `json:"address"`
		Tunnel   bool   `json:"tunnel"`
		Offered  int    `json:"offered"`
		Withheld int    `json:"withheld"`
		MicroUSD int64  `json:"micro_usd"`
		Usage    *struct {
			Input, Output int64
		} `json:"usage"`
	}
	text := "ended"
	if json.Unmarshal(raw, &c) == nil {
		if c.Status != 0 {
			text = fmt.Sprintf("answered %d", c.Status)
		}
		text += fmt.Sprintf(": %d bytes out, %d in, %d ms", c.Sent, c.Received, c.Millis)
		if c.Address != "" {
			text += ", " + c.Address
		}
		if c.Tunnel {
			text += ", not read"
		}
		if c.Offered > 0 {
			text = fmt.Sprintf("%s, %d of them withheld", display.Count(c.Offered, "version", "versions"), c.Withheld)
		}
		if c.Usage != nil {
			text += fmt.Sprintf(", %d tokens in, %d out, %.4f dollars", c.Usage.Input, c.Usage.Output, float64(c.MicroUSD)/1e6)
		}
	}
	if failed != "" {
		text += ": " + failed
	}
	return text
}
