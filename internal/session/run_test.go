package session_test

import (
	"errors"
	"testing"
	"time"

	"ringfence/internal/session"
	"ringfence/internal/sys/proc"
)

// TestRunStates: what has become of a run is told by its own word and by whether the process
// that holds it is the one it was.
func TestRunStates(t *testing.T) {
	own, now := proc.OwnLease(), time.Now()
	again, elsewhere := own, own
	again.Start += "1"
	elsewhere.Boot += "1"
	for _, c := range []struct {
		what string
		run  session.Run
		want string
	}{
		{"its holder lives", session.Run{Holder: own}, session.Running},
		{"its holder is not known", session.Run{}, session.Interrupted},
		{"its holder's number is another's", session.Run{Holder: again}, session.Interrupted},
		{"the machine was started again", session.Run{Holder: elsewhere}, session.Interrupted},
		{"it ended by itself", session.Run{Holder: own, Ended: now}, session.Ended},
		{"it was ended", session.Run{Holder: own, Ended: now, Cause: "the engine was lost"}, session.Interrupted},
	} {
		if got := c.run.State(); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestRunsAreKept: what was saved is found, the latest first, and nothing by a name that is
// none.
func TestRunsAreKept(t *testing.T) {
	dir := t.TempDir()
	if all, err := session.Runs(dir + "/none"); len(all) > 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	a, b := session.NewID(), session.NewID()
	for i, id := range []string{a, b} {
		if err := session.SaveRun(dir, session.Run{ID: id, Began: time.Unix(int64(i), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := session.Runs(dir)
	if err != nil || len(all) != 2 || all[0].ID != b {
		t.Errorf("%+v, %v", all, err)
	}
	for _, bad := range []string{"", "..", "s-../../etc", session.NewID()} {
		if _, err := session.LoadRun(dir, bad); !errors.Is(err, session.ErrNoRun) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if session.SaveRun(dir, session.Run{ID: "../x"}) == nil || session.RemoveRun(dir, "..") == nil {
		t.Error("a name that is none is taken")
	}
	if err := session.RemoveRun(dir, a); err != nil {
		t.Fatal(err)
	}
	if all, err := session.Runs(dir); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
