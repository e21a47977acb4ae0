package boxtest

import (
	"fmt"
	"testing"

	"ringfence/internal/sandbox"
)

// TestLack shows that a tier which is said to lack something must refuse it, and that
// nothing else than a refusal passes.
func TestLack(t *testing.T) {
	s := &suite{o: Options{Cannot: []sandbox.Ability{sandbox.Homes}}}
	if got := s.lacks(run{Case: &Case{Home: true, Tools: true}}); len(got) != 1 || got[0] != sandbox.Homes {
		t.Errorf("it lacks %v, not homes alone", got)
	}
	if got := s.lacks(run{Case: &Case{Tools: true}}); len(got) != 0 {
		t.Errorf("it lacks %v", got)
	}
	refusal := fmt.Errorf("%w: no homes", sandbox.ErrNotBuilt)
	for _, c := range []struct {
		why  []string
		err  error
		want Verdict
	}{
		{nil, refusal, Refused}, {nil, nil, Broken}, {nil, fmt.Errorf("broken"), Broken}, {[]string{"changed outside: x"}, refusal, Broken},
	} {
		o := Outcome{Why: c.why}
		if o.settleLack(s.o.Cannot, c.err); o.Verdict != c.want {
			t.Errorf("%v with %v is %s, not %s", c.err, c.why, o.Verdict, c.want)
		}
	}
}
