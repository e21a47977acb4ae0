//go:build linux

package main

import (
	"regexp"
	"testing"

	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sandbox/native"
)

// TestRun runs a part of the suite as tests of tiers do.
func TestRun(t *testing.T) {
	boxtest.Run(t, native.Tier{}, boxtest.Options{Only: regexp.MustCompile("^(BX-01|BN-03)")})
}
