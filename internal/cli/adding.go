package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/mediator"
	"ringfence/internal/policy/draft"
	"ringfence/internal/sys/atomicfile"
)

// candidateText shows c for a person who decides whether to add it.
func candidateText(c *candidate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", desk.Visible(c.Name, maxShown))
	if c.From != "" {
		fmt.Fprintf(&b, "  (from %s)", desk.Visible(c.From, maxShown))
	}
	b.WriteString("\n  is\n")
	b.WriteString(wholeEntry(c.Entry))
	fmt.Fprintf(&b, "  was asked   %s\n", askedIn(c.Box))
	if c.Drafted {
		fmt.Fprintf(&b, "  annotations drafted by rule, %s: \"ringfence annotate-tools\" shows and corrects them\n", count(len(c.Doubts), "doubt"))
	} else {
		fmt.Fprintf(&b, "  annotations %s\n", c.Annotations)
	}
	for _, name := range c.Secrets {
		fmt.Fprintf(&b, "  holds       the value of %s, which is copied as it is\n", desk.Visible(name, maxShown))
	}
	fmt.Fprintf(&b, "  %s; of the policy, in an ordinary case:\n", count(len(c.Tools), "tool"))
	wide := 0
	for _, t := range c.Tools {
		wide = max(wide, min(len(desk.Visible(t.Name, maxShown)), 60))
	}
	for _, t := range c.Tools {
		var kinds []string
		for _, k := range t.Effects {
			kinds = append(kinds, string(k))
		}
		fmt.Fprintf(&b, "    %-8s %-*s %s\n", verdictWord(t.Verdict), wide, desk.Visible(t.Name, maxShown), strings.Join(kinds, " "))
		for _, r := range t.Remarks {
			fmt.Fprintf(&b, "      look at: %s\n", r)
		}
	}
	return b.String()
}

// askedIn says in words what confined a server while it was asked, which report is the
// whole line of.
func askedIn(report string) string {
	short := shortBox(report)
	if tier, _, _ := strings.Cut(short, ";"); tier == "none" {
		return "where it runs, in no box of ours"
	}
	tier, rest, _ := strings.Cut(short, "; missing: ")
	where, missing := "in a box: "+tier, strings.Fields(rest)
	for i, m := range missing {
		if strings.HasPrefix(m, "network") { // it fetches itself, or a person said so
			where, missing = where+"; it had the network", slices.Delete(missing, i, i+1)
			break
		}
	}
	if len(missing) > 0 {
		where += "; missing: " + strings.Join(missing, " ")
	}
	return where
}

// wholeEntry shows an entry, as it is written, and which variables of this
// environment its server is given. Values are not shown.
func wholeEntry(raw []byte) string {
	var entry bytes.Buffer
	if json.Indent(&entry, raw, "", "  ") != nil {
		entry.Reset()
		entry.Write(raw)
	}
	var b strings.Builder
	for line := range strings.Lines(entry.String()) {
		fmt.Fprintf(&b, "    %s\n", desk.Visible(strings.TrimRight(line, "\n"), 2*maxEntry)) // none is cut: see checkEntry
	}
	for _, name := range variables(raw) {
		fmt.Fprintf(&b, "  ! it is given the value of %s from your environment\n", desk.Visible(name, maxShown))
	}
	return b.String()
}

// maxEntry bounds an entry that a person is shown, in bytes: nobody reads more.
const maxEntry = 4 << 10

// checkEntry refuses an entry that nobody can look at.
func checkEntry(name string, raw []byte) error {
	if len(raw) > maxEntry {
		return fmt.Errorf("the entry of server %s has %d bytes; more than %d cannot be looked at, so not agreed to either", name, len(raw), maxEntry)
	}
	return nil
}

func verdictWord(v act.Verdict) string {
	switch v {
	case act.Allow:
		return "allowed"
	case act.Escalate:
		return "asks"
	case act.Deny:
		return "denied"
	default:
		return "denied"
	}
}

// add takes candidates in: on record first, then what says what their tools do, then the
// list itself.
func (x *examiner) add(ctx context.Context, all []*candidate, replace bool) error {
	src, err := os.ReadFile(x.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the list of servers: %w", err)
	}
	for _, c := range all {
		if src, err = mediator.AddServer(src, c.Name, c.Entry, replace); errors.Is(err, mediator.ErrListed) {
			return &exitError{code: codeFailed, err: fmt.Errorf("%s has a server %s", x.file, c.Name), hint: "--force replaces it"}
		} else if err != nil {
			return &exitError{code: codeUsage, err: fmt.Errorf("%s:%w", x.file, err)}
		}
	}
	return x.admit(ctx, all, src)
}

// admit does what add says, with the list as it will be.
func (x *examiner) admit(ctx context.Context, all []*candidate, list []byte) error {
	err := with(ctx, connect, func(e *api.Client) error {
		for _, c := range all {
			if err := e.Admit(ctx, api.AdmitRequest{Server: c.Name, Program: c.program}, c.list); err != nil {
				return answerError(err)
			}
		}
		sum := sha256.Sum256(list)
		return answerError(e.Admit(ctx, api.AdmitRequest{File: x.file, Sum: hex.EncodeToString(sum[:])}, nil))
	})
	if err != nil {
		return err
	}
	for _, c := range all {
		if !c.Drafted {
			continue
		}
		file, err := acceptedFile(c.Name)
		if err != nil {
			return err
		}
		if err := atomicfile.CreateNew(file, draft.Format(c.draft), 0o600); err != nil {
			return fmt.Errorf("keeping the annotations of %s: %w", c.Name, err)
		}
	}
	if err := atomicfile.Write(x.file, list, 0o600); err != nil {
		return fmt.Errorf("writing the list of servers: %w", err)
	}
	return nil
}

// agree asks the person once. Whoever cannot be asked says no.
func (x *examiner) agree(question, otherwise string, yes bool) error {
	if yes {
		return nil
	}
	no := &exitError{code: codeDenied, err: errors.New(otherwise), hint: "--yes does it without asking"}
	if !isTerminal(x.s.in) {
		no.hint = "nobody was asked, as standard input is no terminal, where a person types yes; " + no.hint
		return no
	}
	fmt.Fprintf(x.s.err, "%s Type yes: ", question)
	answer, err := bufio.NewReader(io.LimitReader(x.s.in, 64)).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return no
	}
	return nil
}
