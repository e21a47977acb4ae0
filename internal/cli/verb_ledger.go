package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/ledger"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// newLedger is "ringfence ledger".
func newLedger(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "ledger",
		Short: "Read and verify the record of what agents did",
	}
	c.AddCommand(newLedgerSessions(s), newLedgerShow(s), newLedgerVerify(s), newLedgerExport(s), newLedgerKey(s))
	return c
}

func newLedgerSessions(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions on record",
		Long: "List the sessions of agents on record. What the engine and the ledger record of\n" +
			"themselves is in sessions called \"engine\" and \"ledger\": they are not in this list,\n" +
			"\"ringfence ledger show\" prints them and \"ringfence ledger verify\" counts them.",
		RunE: func(c *cobra.Command, _ []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				all, err := e.LedgerSessions(c.Context())
				if err != nil {
					return err
				}
				if all == nil {
					all = []api.SessionInfo{}
				}
				return s.value(all, func() string {
					if len(all) == 0 {
						return "No agent had a session yet.\n"
					}
					var b strings.Builder
					for _, i := range all {
						state := "ended"
						if i.Open {
							state = "open"
						}
						fmt.Fprintf(&b, "%s  %s  %-5s  %4d entries  %s  %s\n", i.ID, i.Started.Local().Format("2006-01-02 15:04:05"), state, i.Entries, i.Principal, i.Workspace)
					}
					return b.String()
				})
			})
		},
	}
}

func newLedgerShow(s *streams) *cobra.Command {
	var kind string
	var tail int
	c := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "Print the entries of a session, or all",
		Long: "Print the entries of a session, or all, oldest first. With --json each line is an\n" +
			"entry exactly as it is stored and hashed.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if tail < 0 {
				return &exitError{code: codeUsage, err: fmt.Errorf("--tail %d: there is no such number of entries", tail)}
			}
			if err := checkType(c, kind); err != nil {
				return err
			}
			q := api.LedgerQuery{Kind: kind, Tail: tail}
			if len(args) == 1 {
				q.Session = args[0]
			}
			return with(c.Context(), connect, func(e *api.Client) error {
				return sessionHint(e.LedgerEntries(c.Context(), q, func(raw json.RawMessage) error {
					if s.json {
						if s.out.onTerminal() {
							raw = desk.EscapeJSON(raw) // the same value in other bytes
						}
						_, err := fmt.Fprintf(s.out, "%s\n", raw)
						return err
					}
					line, err := entryText(raw)
					if err != nil {
						return err
					}
					_, err = io.WriteString(s.out, printable(line))
					return err
				}))
			})
		},
	}
	c.Flags().StringVar(&kind, "type", "", "only entries of this type")
	c.Flags().IntVar(&tail, "tail", 0, "only the newest `N`")
	return c
}

// checkType refuses a type that no entry has.
func checkType(c *cobra.Command, kind string) error {
	known := daemon.EntryTypes()
	if kind == "" || slices.Contains(known, kind) {
		return nil
	}
	e := &exitError{
		code: codeUsage, hint: usageHint(c),
		err: fmt.Errorf("no entry is of type %q: there are %s", kind, strings.Join(known, ", ")),
	}
	if near := nearest(kind, known); near != "" {
		e.hint = fmt.Sprintf("did you mean --type %s?", near)
	}
	return e
}

func newLedgerVerify(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:         "verify",
		Short:       "Verify the whole record of this home",
		Annotations: exits(status{codeFailed, "the record is invalid"}, status{codeDenied, "the record is incomplete"}),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			var v api.Verification
			err = with(c.Context(), connect, func(e *api.Client) (err error) {
				v, err = e.LedgerVerify(c.Context())
				return err
			})
			if err != nil {
				// An engine does not open a record that was tampered with.
				if v, err = verifyOffline(c.Context(), err); err != nil {
					return err
				}
			}
			if err := s.value(v, func() string { return verificationText(paths.LedgerDir(home), v) }); err != nil {
				return err
			}
			return verdictOf(v.Status)
		},
	}
}

func newLedgerExport(s *streams) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "export SESSION",
		Short: "Write one session as a file that anyone can verify",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				if out == "" {
					return sessionHint(e.LedgerExport(c.Context(), args[0], s.out))
				}
				var buf bytes.Buffer
				if err := e.LedgerExport(c.Context(), args[0], &buf); err != nil {
					return sessionHint(err)
				}
				if err := atomicfile.WriteOutput(out, buf.Bytes(), 0o600); err != nil {
					return err
				}
				return s.value(map[string]any{"file": out, "bytes": buf.Len()}, func() string {
					return fmt.Sprintf("%s: %d bytes\n", out, buf.Len())
				})
			})
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	return c
}

// verifyOffline verifies the record of this home without an engine, which could not
// be had because of why.
func verifyOffline(ctx context.Context, why error) (api.Verification, error) {
	home, err := paths.Home()
	if err != nil {
		return api.Verification{}, err
	}
	keys, err := keychain.Known(paths.LedgerKey(home), paths.TrustedKeys(home))
	if err != nil {
		return api.Verification{}, errors.Join(why, err)
	}
	v, err := ledger.VerifyDir(ctx, paths.LedgerDir(home), keys)
	if err != nil {
		return api.Verification{}, errors.Join(why, err)
	}
	out := api.Verification{Status: v.Status.String(), Entries: uint64(v.Entries), Sessions: int(v.Sessions), Key: v.Key}
	if v.Reason != "" {
		out.Problems = append(out.Problems, v.Reason)
	}
	out.Problems = append(out.Problems, "verified without the engine: "+why.Error())
	return out, nil
}

// sessionHint says where the sessions are listed, if the one named is not there.
func sessionHint(err error) error {
	if errors.Is(err, api.ErrNotFound) {
		return &exitError{code: codeFailed, err: err, hint: `"ringfence ledger sessions" lists them`}
	}
	return err
}

func newLedgerKey(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key that signs this record",
		Long: "Print the public key that signs this record. Who has it from you can verify what you\n" +
			"export: \"ringfence verify --key KEY FILE\".",
		RunE: func(*cobra.Command, []string) error {
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			key, err := keychain.LoadOrCreate(paths.LedgerKey(home))
			if err != nil {
				return err
			}
			text := keychain.PublicText(key.Public().(ed25519.PublicKey))
			return s.value(map[string]string{"key": text}, func() string { return text + "\n" })
		},
	}
}

// verdictOf maps a verification to an exit status.
func verdictOf(status string) error {
	switch status {
	case "valid":
		return nil
	case "incomplete":
		return &exitError{code: codeDenied}
	}
	return &exitError{code: codeFailed}
}

// answerError tells a refused answer from one that failed.
func answerError(err error) error {
	if errors.Is(err, api.ErrRefused) {
		return &exitError{code: codeDenied, err: err}
	}
	return err
}

// verificationText is about the ledger in dir.
func verificationText(dir string, v api.Verification) string {
	var b strings.Builder
	b.WriteString(v.Status)
	if v.Status == "invalid" { // what is wrong says where, and how many come before it says nothing
		b.WriteString(": " + dir)
	} else {
		fmt.Fprintf(&b, ": %s in %s, with what the engine records of itself", display.Count(v.Entries, "entry", "entries"), display.Count(v.Sessions, "session", "sessions"))
	}
	b.WriteByte('\n')
	if v.Root != "" {
		fmt.Fprintf(&b, "root %s\n", v.Root)
	}
	for _, p := range v.Problems {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	return b.String()
}

// entryText is an entry on one line or a few, for people.
func entryText(raw []byte) (string, error) {
	var e struct {
		Session string          `json:"session"`
		Seq     int64           `json:"seq"`
		Time    string          `json:"time"`
		Type    string          `json:"type"`
		Body    json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return "", fmt.Errorf("reading an entry: %w", err)
	}
	return fmt.Sprintf("%s %s/%d %s %s\n", e.Time, e.Session, e.Seq, e.Type, summary(e.Type, e.Body)), nil
}
