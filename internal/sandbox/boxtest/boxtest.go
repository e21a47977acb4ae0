// Package boxtest is the suite that every tier of boxes must pass: attacks that no
// box may let through, and honest work that none may hinder.
//
// A case starts a box of the tier with a hostile program in it, the probe, which
// tries one thing after another and prints what the kernel answered. Around the box
// is a world of its own: files, a process, listeners, shared memory, a repository.
// A case passes if the kernel refused, and the world is as it was.
//
// It runs straight against the [sandbox.Tier]: nothing that decides above a box is
// involved. It is no test of policies, of what leaves by the way out, nor of speed.
// It needs a C compiler, and Linux.
//
// Invariants:
//
//	X1  What counts is the kernel's answer, as the probe got it, and the world
//	    outside. What the box says of itself never makes a case pass.
//	X2  A layer that a Report calls enforced must be confirmed by an answer; one that
//	    an answer contradicts is a failure.
//	X3  A case is never passed over silently: what a tier does not hold, its Report
//	    must call missing, or its Start must refuse; only cases that name the layer
//	    accept this.
//	X4  An attack is bounded by itself: a box that holds nothing leaves the machine
//	    that runs the suite alive, if it is not run as root there.
package boxtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

// A Class says what a case would mean if it went wrong.
type Class string

// The classes.
const (
	Escape   Class = "Escape"   // something outside is changed, or a right is gained
	HostLeak Class = "HostLeak" // something outside is read or seen
	Exfil    Class = "Exfil"    // something gets out by the network
	Lateral  Class = "Lateral"  // another process or service is reached
	HostDoS  Class = "HostDoS"  // the machine is used up, or something outlives the box
	Harmless Class = "Harmless" // honest work, which must work
)

// Classes are all classes, in the order in which they are shown.
var Classes = [...]Class{Escape, HostLeak, Exfil, Lateral, HostDoS, Harmless}

// Options say how the suite is run. The zero Options run every case, one after
// another, on a tier that holds names.
type Options struct {
	// Only are the cases whose "id name" matches; nil is all.
	Only *regexp.Regexp
	// Without are classes that are left out. What they would have confirmed of a
	// Report is unconfirmed then.
	Without []Class
	// Workers is how many boxes there are at once, at least 1.
	Workers int
	// NoHolds says that the tier refuses to make files writable beside names that
	// are held. Cases about held names then accept that refusal, and all others
	// are run with Spec.LaterWritable.
	NoHolds bool
	// Cannot are abilities that the tier has not. Cases that need one must be refused:
	// a box that starts without is broken, and so is a refusal that is not named here.
	Cannot []sandbox.Ability
	// Sparse takes a sample of cases that are made from a row of numbers, for
	// tiers that take long to start.
	Sparse bool
	// Image says that the boxes have a file system of their own, in which programs
	// of this machine need not be: they are looked for there, with /bin/sh.
	Image bool
	// MaySkip lets Run pass where cases were skipped because a program is not there.
	MaySkip bool
	// Dir is where the worlds are made; "" is the directory of temporary files.
	Dir string
}

// A Verdict says how a case went.
type Verdict string

// The verdicts. The zero Verdict is that nothing was seen.
const (
	Held      Verdict = "held"      // attacks were refused, honest work was done
	Broken    Verdict = "broken"    // it was otherwise
	Refused   Verdict = "refused"   // the box was not built, because it could not hold this
	Missing   Verdict = "missing"   // not held, and the Report says so
	Skipped   Verdict = "skipped"   // a program is not there
	Unclaimed Verdict = "unclaimed" // it is about a layer that the Report does not claim
)

// An Outcome is how one case went in one place.
type Outcome struct {
	ID, Name string
	Class    Class
	Place    string // "command:ro"
	N        int    // which, of a case that is made from a row of numbers; else -1
	Verdict  Verdict
	// Why says what was wrong, or why there was no answer, one thing each.
	Why []string
	// Answers are the lines of the probe.
	Answers []string
	Report  sandbox.Report
	Took    time.Duration

	proves []string
}

// String names the outcome: "FS-13 metadata (agent:rw)".
func (o Outcome) String() string {
	name := o.ID + " " + o.Name
	if o.N >= 0 {
		name += " " + strconv.Itoa(o.N)
	}
	return name + " (" + o.Place + ")"
}

// Run runs the cases that o names against t, and fails tb for each that is broken.
func Run(tb testing.TB, tier sandbox.Tier, o Options) {
	tb.Helper()
	outcomes, err := Check(tb.Context(), tier, o)
	if err != nil {
		tb.Fatal(err)
	}
	count := map[Verdict]int{}
	for _, c := range outcomes {
		count[c.Verdict]++
		switch c.Verdict {
		case Broken:
			tb.Errorf("%s: %s: %s", c.Class, c, strings.Join(c.Why, "\n\t"))
		case Skipped:
			tell := tb.Errorf
			if o.MaySkip {
				tell = tb.Logf
			}
			tell("%s: skipped: %s", c, strings.Join(c.Why, "; "))
		case Held, Refused, Missing, Unclaimed:
		}
	}
	tb.Logf("%d cases held, %d broken, %d refused, %d missing, %d skipped",
		count[Held], count[Broken], count[Refused], count[Missing], count[Skipped])
}

// Check runs the cases that o names against tier, and says how each went. The error
// is that the suite could not be run.
func Check(ctx context.Context, tier sandbox.Tier, o Options) ([]Outcome, error) {
	cases, err := Cases()
	if err != nil {
		return nil, err
	}
	var chosen []run
	for _, c := range cases {
		if slices.Contains(o.Without, c.Class) || o.Only != nil && !o.Only.MatchString(c.ID+" "+c.Name) {
			continue
		}
		for _, p := range c.In {
			chosen = append(chosen, c.runs(p, o.Sparse)...)
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("boxtest: no case is chosen")
	}
	s, err := newSuite(ctx, tier, o)
	if err != nil {
		return nil, fmt.Errorf("boxtest: %w", err)
	}
	outcomes, err := s.all(ctx, chosen)
	if err := errors.Join(err, s.close()); err != nil {
		return nil, fmt.Errorf("boxtest: %w", err)
	}
	if o.Only == nil {
		outcomes = append(outcomes, unconfirmed(outcomes)...)
	}
	return outcomes, nil
}
