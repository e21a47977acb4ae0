package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/unboxed"
)

// The test binary is the attacker when it is run with this word.
const asAttacker = "be-the-attacker"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asAttacker {
		if err := Attack(os.Args[2], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestX1: where nothing confines, nearly everything gets through and is told so.
func TestX1(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := Examine(t.Context(), unboxed.Tier{}, self, asAttacker)
	if f.Error != "" || f.Holds() {
		t.Fatalf("%+v", f)
	}
	through := map[string]bool{}
	for _, trial := range f.Trials {
		through[trial.Name] = trial.Worked
		if !trial.Attack && !trial.Worked {
			t.Errorf("%s: %s", trial.Name, trial.Answer)
		}
	}
	for _, name := range []string{
		"read a file outside", "read it through a link", "write a file outside", "see that it is there", "change its mode",
		"link it into the workspace", "make a file beside it", "plant a git hook that the host would run",
		"plant settings that an agent on the host would obey", "plant them by a detour through /proc", "read the environment of who started it", "signal who started it",
		"trace a process", "connect to a socket outside", "gain privileges", "leave a mark outside",
	} {
		if !through[name] {
			t.Errorf("unboxed, and yet it could not %s", name)
		}
	}
}

// TestX2: a box that was not built holds nothing, and neither does a report alone.
func TestX2(t *testing.T) {
	f := Examine(t.Context(), unboxed.Tier{}, "/nosuch/program")
	if f.Holds() || !strings.Contains(f.Error, "/nosuch/program") {
		t.Errorf("%+v", f)
	}
	if (Finding{Report: sandbox.Report{Tier: "x", Enforced: []string{"seccomp"}}}).Holds() {
		t.Error("nothing was tried")
	}
}
