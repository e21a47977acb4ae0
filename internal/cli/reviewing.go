package cli

import (
	"context"
	"errors"
	"strings"

	"ringfence/internal/launch"
	"ringfence/internal/review"
	"ringfence/internal/sandbox"
)

// launchReviewed is launch, with a review of the workspace if one is wanted.
func (s *streams) launchReviewed(ctx context.Context, o launch.Options, spec sandbox.Spec, wanted bool, session string) (int, error) {
	if !wanted {
		return s.launch(ctx, o, spec)
	}
	home, person, err := reviewHomes()
	if err != nil {
		return 0, err
	}
	r, err := review.New(review.Options{Home: home, Person: person, Workspace: spec.Workspace.Path, Session: session})
	if err != nil {
		return 0, errors.Join(sandbox.ErrNotBuilt, err)
	}
	spec.Workspace.Upper, spec.Workspace.Work = r.Upper, r.Work
	status, err := s.launch(ctx, o, spec)
	return status, errors.Join(err, s.endReview(r))
}

// summaryChanges is how many changes are told of when a box has ended.
const summaryChanges = 20

// endReview says what waits, and what can be done; a review without changes goes.
func (s *streams) endReview(r *review.Review) error {
	all, err := r.Changes()
	if err == nil && len(all) == 0 {
		return errors.Join(r.Remove(), r.Close())
	}
	if err = errors.Join(err, r.Close()); err != nil {
		s.say("what was changed is kept in review %s", r.ID)
		return err
	}
	var text strings.Builder
	text.WriteString(plural(uint64(len(all)), "change waits", "changes wait") + " in review " + r.ID + "; the workspace is as it was\n")
	for i, c := range all {
		if i == summaryChanges {
			text.WriteString("  … and " + plural(uint64(len(all)-i), "more", "more") + ": ringfence review list " + r.ID + "\n")
			break
		}
		text.WriteString(changeLine(c))
	}
	s.say("%s  see it:      ringfence review diff %[2]s\n  take it:     ringfence review apply %[2]s\n  give it up:  ringfence review discard %[2]s", text.String(), r.ID)
	return nil
}
