//go:build linux

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sandbox/native"
)

// TestRun runs a part of the suite as tests of tiers do.
func TestRun(t *testing.T) {
	boxtest.Run(t, native.Tier{}, boxtest.Options{Only: regexp.MustCompile("^(BX-01|BN-03)"), MaySkip: os.Getenv("CI") != "true"})
}

// TestWays runs the whole suite in every way that people have boxes in. The same as
// a table is "make boxes".
func TestWays(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	self, err := copySelf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ways {
		t.Run(w.Name, func(t *testing.T) {
			if why := w.unavailable(); why != "" {
				if os.Getenv("CI") == "true" {
					t.Fatal(why)
				}
				t.Skip(why)
			}
			r := row{way: w}
			if err := r.start(t.Context(), self, dir, "", os.Stderr); err != nil {
				t.Fatal(err)
			}
			for _, o := range r.Outcomes {
				switch o.Verdict {
				case boxtest.Broken:
					t.Errorf("%s: %s: %s", o.Class, o, strings.Join(o.Why, "\n\t"))
				case boxtest.Skipped:
					tell := t.Logf
					if os.Getenv("CI") == "true" {
						tell = t.Errorf
					}
					tell("%s: skipped: %s", o, strings.Join(o.Why, "; "))
				case boxtest.Held, boxtest.Refused, boxtest.Missing, boxtest.Unclaimed:
				}
			}
			t.Log("\n" + table([]row{r}))
		})
	}
}
