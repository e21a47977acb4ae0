package proc

import (
	"os/exec"
	"testing"
)

// TestLease: a lease is of one process of one start of the machine.
func TestLease(t *testing.T) {
	own := OwnLease()
	if own.Start == "" || own.Boot == "" || !own.Live() {
		t.Fatalf("%+v", own)
	}
	for what, l := range map[string]Lease{
		"nobody's": {}, "another's with the number": {PID: own.PID, Start: own.Start + "1", Boot: own.Boot},
		"of another start of the machine": {PID: own.PID, Start: own.Start, Boot: "x"},
	} {
		if l.Live() {
			t.Errorf("%s is live: %+v", what, l)
		}
	}
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	l := leaseOf(child.Process.Pid)
	if err := child.Wait(); err != nil || l.Live() {
		t.Errorf("%v, and its lease is live: %+v", err, l)
	}
	if got := startOf("7 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 1"); got != "4711" {
		t.Errorf("start %q", got)
	}
	if startOf("7 (a") != "" || startOf("7 (a) S 1") != "" {
		t.Error("a line that is none has a start")
	}
}
