package daemon

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
)

// TestReviews: what a person does with a review is on record, and by whom.
func TestReviews(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	r := api.ReviewRecord{Review: "r-1", Workspace: "/w", Action: "apply", Paths: []string{"a"}, Force: true}
	if err := c.RecordReview(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	r.Action = "keep"
	if err := c.RecordReview(context.Background(), r); err == nil {
		t.Error("an action that is none was recorded")
	}
	var found []string
	err := c.LedgerEntries(context.Background(), api.LedgerQuery{Kind: entryReview}, func(raw json.RawMessage) error {
		found = append(found, string(raw))
		return nil
	})
	if err != nil || len(found) != 1 || !strings.Contains(found[0], `"action":"apply","by":"yes: `) || !strings.Contains(found[0], `"force":true,"paths":["a"]`) {
		t.Errorf("%v, %q", err, found)
	}
}
