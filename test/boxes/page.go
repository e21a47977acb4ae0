//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sys/atomicfile"
)

// broken says what went wrong.
func (r row) broken() string {
	var b strings.Builder
	for _, o := range r.Outcomes {
		if o.Verdict == boxtest.Broken {
			fmt.Fprintf(&b, "%s: %s: %s\n\t%s\n", r.Name, o.Class, o, strings.Join(o.Why, "\n\t"))
		}
	}
	return b.String()
}

// answers says what the kernel answered.
func (r row) answers() string {
	var b strings.Builder
	for _, o := range r.Outcomes {
		fmt.Fprintf(&b, "%s: %s: %s in %v; %s\n\t%s\n", r.Name, o, o.Verdict, o.Took.Round(time.Millisecond), o.Report, strings.Join(slices.Concat(o.Answers, o.Why), "\n\t"))
	}
	return b.String()
}

// table is the table of tiers and classes, as markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range boxtest.Classes {
		b.WriteString(" " + string(c) + " |")
	}
	b.WriteString(" time |\n|---" + strings.Repeat("|---:", len(boxtest.Classes)+1) + "|\n")
	for _, r := range rows {
		b.WriteString("| " + r.Name + " |")
		counts := boxtest.Tally(r.Outcomes)
		for _, c := range boxtest.Classes {
			if r.Without != "" {
				b.WriteString(" not run |")
			} else {
				b.WriteString(" " + counts[c].String() + " |")
			}
		}
		fmt.Fprintf(&b, " %.0f s |\n", r.Took.Seconds())
	}
	return b.String()
}

// page is what stands between the marks in docs/sandbox.md.
func page(rows []row) string {
	var b strings.Builder
	var name unix.Utsname
	machine := "an unknown machine"
	if unix.Uname(&name) == nil {
		machine = "Linux " + unix.ByteSliceToString(name.Release[:]) + ", " + unix.ByteSliceToString(name.Machine[:])
	}
	fmt.Fprintf(&b, "Measured on %s, %s. Each cell is *cases run / broken*; a case counts once for each place it runs in.\n", machine, time.Now().UTC().Format("2006-01-02"))
	b.WriteString("*refused*: the box was not started, because it could not have held this. *missing*: it does not hold this, and its report says so. *skipped*: a program is not there, or not in the image.\n\n")
	b.WriteString(table(rows))
	b.WriteString("\nLayers that a report claimed and the kernel confirmed to the probe:\n\n")
	for _, r := range rows {
		if r.Without != "" {
			fmt.Fprintf(&b, "- %s: not run (%s)\n", r.Name, r.Without)
			continue
		}
		fmt.Fprintf(&b, "- %s: %s\n", r.Name, strings.Join(layers(r.Outcomes), ", "))
	}
	for _, v := range []boxtest.Verdict{boxtest.Refused, boxtest.Missing} {
		lines := listed(rows, v)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\nWhat was *%s*:\n\n%s", v, strings.Join(lines, ""))
	}
	return b.String()
}

// layers lists what the reports claimed. Check makes an outcome that is broken of
// each layer that nothing confirms, so what is here was confirmed.
func layers(outcomes []boxtest.Outcome) (all []string) {
	broken := map[string]bool{}
	for _, o := range outcomes {
		if o.ID == "X2" {
			broken[strings.TrimPrefix(o.Name, "layer ")] = true
		}
	}
	for _, o := range outcomes {
		for _, l := range o.Report.Enforced {
			l, _, _ = strings.Cut(l, "=")
			if !slices.Contains(all, l) && !broken[l] {
				all = append(all, l)
			}
		}
	}
	slices.Sort(all)
	return all
}

// listed returns lines with the names of what went so, for each row.
func listed(rows []row, v boxtest.Verdict) (lines []string) {
	for _, r := range rows {
		var names []string
		for _, o := range r.Outcomes {
			if name := o.ID + " " + o.Name; o.Verdict == v && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("- %s: %s\n", r.Name, strings.Join(names, "; ")))
		}
	}
	return lines
}

const (
	begin = "<!-- boxes: begin (make boxes) -->\n"
	end   = "<!-- boxes: end -->\n"
)

// writeBetween replaces what is between the marks of a file.
func writeBetween(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no marks %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return atomicfile.Write(file, slices.Concat(before, []byte(begin), []byte(text), []byte(end), after), 0o644)
}
