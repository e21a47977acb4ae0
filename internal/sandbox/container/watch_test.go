package container

import (
	"strings"
	"testing"
)

// What watches ends with whom it watches, and asks no engine where nothing is left. What
// it is not told whole it does not guess.
func TestWatch(t *testing.T) {
	const nobody = `"Runtime":"docker","Socket":"/nonexistent/docker.sock","Home":"/h"`
	for in, want := range map[string]int{
		"":                                   notInContainer,
		"nonsense\n":                         notInContainer,
		"{" + nobody + "}\n+":                notInContainer,
		"{" + nobody + `,"Mark":"m"}`:        notInContainer,
		"{" + nobody + `,"Mark":"m"}` + "\n": 0,
		"{" + nobody + `,"Mark":"m"}` + "\n++-+--": 0,
		strings.Repeat("x", maxWatched+1) + "\n":   notInContainer,
	} {
		if got := runWatch(strings.NewReader(in)); got != want {
			t.Errorf("%.100q: %d, want %d", in, got, want)
		}
	}
}
