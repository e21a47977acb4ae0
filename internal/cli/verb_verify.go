package cli

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/ledger"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// newVerify is "ringfence verify".
func newVerify(s *streams) *cobra.Command {
	var keys []string
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify an exported session, without engine or database",
		Long: "Verify an exported session, without engine or database. It is valid only if a key\n" +
			"that you trust signed it: the key of this home, one in the trusted keys of this\n" +
			"home, or one given with --key. Any changed bit makes it invalid.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeDone, "valid"}, status{codeFailed, "invalid"}, status{codeDenied, "incomplete: nothing is wrong, and something is not proved"}),
		RunE: func(c *cobra.Command, args []string) error {
			trusted, err := trustedKeys(keys)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("opening the export: %w", err)
			}
			defer f.Close()
			v, err := ledger.VerifyExport(f, trusted)
			if err != nil {
				return fmt.Errorf("verifying %s: %w", args[0], err)
			}
			if err := s.value(v, func() string { return exportText(args[0], v) }); err != nil {
				return err
			}
			return verdictOf(v.Status.String())
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "trust this public key: its text, or a `FILE` that holds it; may be repeated")
	return c
}

// exportText names the file, and the line and the entry that are wrong, and says how
// far it is as it was signed.
func exportText(file string, v ledger.Verification) string {
	var b strings.Builder
	b.WriteString(v.Status.String())
	switch {
	case v.Line > 0:
		fmt.Fprintf(&b, ": %s, line %d", file, v.Line)
	case v.Status != ledger.Valid:
		fmt.Fprintf(&b, ": %s", file)
	}
	if v.Reason != "" {
		fmt.Fprintf(&b, ": %s", v.Reason)
	}
	b.WriteByte('\n')
	if v.Session == "" {
		return b.String()
	}
	entries := display.Count(v.Entries, "entry", "entries")
	if v.Status == ledger.Invalid {
		entries += " before that as they were signed"
	}
	fmt.Fprintf(&b, "session %s, %s, signed by key %s of %s\n", v.Session, entries, v.Key, v.Origin)
	return b.String()
}

// trustedKeys are the keys given, that of this home, and those it trusts.
// Nothing is made: a home that is not there has none.
func trustedKeys(given []string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for _, text := range given {
		// The line of an export that names its key is accepted as it stands there.
		text = strings.TrimPrefix(text, "key ")
		key, err := keychain.ParsePublic(text)
		if err != nil {
			data, readErr := os.ReadFile(text)
			if readErr != nil {
				return nil, &exitError{code: codeUsage, err: fmt.Errorf("--key is neither a public key (%w) nor a file (%w)", err, readErr)}
			}
			if key, err = keychain.ParsePublic(string(data)); err != nil {
				return nil, &exitError{code: codeUsage, err: fmt.Errorf("--key %s: %w", text, err)}
			}
		}
		keys = append(keys, key)
	}
	home, err := paths.Home()
	if err != nil {
		return nil, err
	}
	own, err := keychain.Known(paths.LedgerKey(home), paths.TrustedKeys(home))
	return append(keys, own...), err
}
