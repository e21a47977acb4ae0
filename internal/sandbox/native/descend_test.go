package native

import (
	"slices"
	"testing"
)

func TestDescend(t *testing.T) {
	all := []task{
		{pid: 1, session: 1, group: 1},
		{pid: 50, parent: 1, session: 50, group: 50}, // we
		{pid: 100, parent: 50, session: 100, group: 100, zombie: true},
		{pid: 101, parent: 100, session: 100, group: 101},
		{pid: 102, parent: 1, session: 100, group: 102},               // its parent is gone, its session is not
		{pid: 103, parent: 1, session: 103, group: 103, started: 7},   // left both, but was seen before
		{pid: 104, parent: 103, session: 104, group: 104},             // its child
		{pid: 105, parent: 1, session: 105, group: 105, started: 9},   // the number of one that was seen, given out again
		{pid: 106, parent: 50, session: 50, group: 50},                // a child of ours
		{pid: 107, parent: 106, session: 107, group: 100, started: 1}, // joined the group
	}
	known := map[task]bool{{pid: 103, started: 7}: true, {pid: 105, started: 8}: true, {pid: 1}: true, {pid: 50}: true}
	var got []int
	for _, m := range descend(all, 100, 50, known) {
		got = append(got, m.pid)
	}
	if want := []int{100, 101, 102, 103, 104, 107}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
