package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sandbox/native"
)

func TestMain(m *testing.M) {
	native.Child() // does not return in the stage of a box
	os.Exit(m.Run())
}

// TestBench runs every group a few times, so that the figures can be had when
// they are wanted. How long anything took is of no interest.
func TestBench(t *testing.T) {
	file := t.TempDir() + "/bench.md"
	var table strings.Builder
	if err := run(t.Context(), []string{"-scale", "0.001", "-o", file}, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"decision, 10,000 rules, host", "history monitor", "scan of", "call that observes", "call that is denied", "16 at once",
		"observes, beside a relay", "with a session, beside a relay", "a relay over HTTP", "denied, beside a relay", "in our place", "a hop between two processes", "not yet on disk",
		"20 clients", "one writer", "512 writers", "verify", "constitution default", "--version", "mediator ready", "sessions open", "memory of the mediator, idle", "sessions of clients", "restarts of its server", "from nothing",
		"box set up with every layer, profile command", "profile agent", "in a held workspace", "in a read-only workspace",
		"in a workspace of", "review: 10 files",
	} {
		if !strings.Contains(table.String(), want) || !strings.Contains(string(text), want) {
			t.Errorf("there is no row about %q", want)
		}
	}
}

// TestSpan holds how figures are written.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1500: "1.5 µs", 12_340: "12.3 µs", 150 * time.Microsecond: "150 µs", 2 * time.Second: "2 s", -1500: "-1.5 µs",
	} {
		if got := span(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	for x, want := range map[float64]string{12: "12", 999: "999", 1234: "1,230", 54321: "54,300", 1234567: "1,230,000"} {
		if got := grouped(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}
