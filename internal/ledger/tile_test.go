package ledger

import (
	"fmt"
	"testing"
)

// TestTileWithinDraft: a chain is looked up in what the database holds, not in what
// the same transaction has added before: two chains grow in one transaction after
// the ledger was opened again, and the first completes a tile.
func TestTileWithinDraft(t *testing.T) {
	dir, o := t.TempDir(), Options{Key: testKey}
	l := mustOpen(t, dir, o)
	body := []byte(`{}`)
	for _, s := range []string{"a", "b"} {
		if _, err := l.Append(t.Context(), false, Entry{s, "x", body}); err != nil {
			t.Fatal(err)
		}
	}
	// ledger-close and ledger-restart follow; then one more completes the tile.
	for n := 3; n < tileWidth-4; n++ {
		if _, err := l.Append(t.Context(), false, Entry{fmt.Sprint("fill", n), "x", body}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Append(t.Context(), false, Entry{"b", "x", body}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, o)
	// Two requests of one transaction, as when two callers come at once.
	var group []*request
	for _, s := range []string{"a", "b"} {
		group = append(group, &request{entries: []Entry{{s, "x", body}}})
	}
	if refused, err := l.commit(t.Context(), group); err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Fatalf("%+v, %v", v, err)
	}
	l.Close(t.Context())
}
