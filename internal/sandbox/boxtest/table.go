package boxtest

import (
	"fmt"
	"strings"
)

// A Count is what became of the cases of one class.
type Count struct {
	Run, Broken, Refused, Missing, Skipped int
}

// Tally counts outcomes by class. A case counts once for each of its places, also if
// it is made from a row of numbers: then the worst counts.
func Tally(outcomes []Outcome) map[Class]Count {
	type once struct{ id, name, place string }
	worst := map[once]Outcome{}
	for _, o := range outcomes {
		key := once{o.ID, o.Name, o.Place}
		if before, ok := worst[key]; !ok || before.Verdict != Broken {
			worst[key] = o
		}
	}
	all := map[Class]Count{}
	for _, o := range worst {
		c := all[o.Class]
		switch o.Verdict {
		case Held:
			c.Run++
		case Broken:
			c.Run++
			c.Broken++
		case Refused:
			c.Refused++
		case Missing:
			c.Missing++
		case Skipped:
			c.Skipped++
		case Unclaimed:
		}
		all[o.Class] = c
	}
	return all
}

// String says "31 / 0": run and broken; and what was not run.
func (c Count) String() string {
	text := fmt.Sprintf("%d / %d", c.Run, c.Broken)
	var more []string
	for _, m := range []struct {
		n    int
		what Verdict
	}{{c.Refused, Refused}, {c.Missing, Missing}, {c.Skipped, Skipped}} {
		if m.n > 0 {
			more = append(more, fmt.Sprintf("%d %s", m.n, m.what))
		}
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return text
}
