package daemon

import (
	"context"

	"ringfence/internal/daemon/api"
)

// entryReview is the entry of what a person did with what a box changed.
const entryReview = "review"

// maxReviewPaths is how many paths an entry names.
const maxReviewPaths = 1000

type reviewEntry struct {
	api.ReviewRecord
	More int    `json:"more,omitempty"` // paths that are not named
	By   string `json:"by"`
}

// RecordReview puts a review on record, in the chain of what no session did.
func (e *Engine) RecordReview(ctx context.Context, c api.Caller, r api.ReviewRecord) error {
	if r.Action != "apply" && r.Action != "discard" {
		return api.Errorf(api.CodeBadRequest, "a review is applied or discarded, not %q", r.Action)
	}
	who := identity(c.Peer)
	if e.waits(who) {
		return api.Errorf(api.CodeRefused, "a session that is open was started from this terminal, and an agent must not settle its own changes: do it in another terminal, or end that session")
	}
	entry := reviewEntry{ReviewRecord: r, By: person(who, r.Action == "apply")}
	if more := len(r.Paths) - maxReviewPaths; more > 0 {
		entry.Paths, entry.More = r.Paths[:maxReviewPaths], more
	}
	if err := e.append(ctx, engineChain, entryReview, entry); err != nil {
		return api.Errorf(api.CodeUnavailable, "recording the review: %v", err)
	}
	return nil
}
