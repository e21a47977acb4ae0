package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"ringfence/internal/act/display"
	"ringfence/internal/act/places"
	"ringfence/internal/launch"
	"ringfence/internal/review"
	"ringfence/internal/sandbox"
)

// launchReviewed is launch, with a review of the workspace if one is wanted.
func (s *streams) launchReviewed(ctx context.Context, o launch.Options, spec sandbox.Spec, wanted bool, session string) (int, settling, error) {
	if !wanted {
		return s.launch(ctx, o, spec)
	}
	if o.Tier.Name() == sandbox.TierNone {
		return 0, settled, &exitError{
			code: codeNotBuilt, err: errors.New("nothing keeps a command from the workspace without a box, so there is nothing to review"),
			hint: "nothing was run; use --tier native or --tier container",
		}
	}
	home, person, err := reviewHomes()
	if err != nil {
		return 0, settled, err
	}
	workspace, err := filepath.EvalSymlinks(spec.Workspace.Path)
	if err != nil {
		return 0, settled, errors.Join(sandbox.ErrNotBuilt, err)
	}
	r, err := review.New(review.Options{Home: home, Person: person, Workspace: workspace, Session: session})
	if err != nil {
		return 0, settled, errors.Join(sandbox.ErrNotBuilt, err)
	}
	o.Tier = reviewed{o.Tier, r, func(because error) error {
		because = errors.New(strings.ReplaceAll(because.Error(), sandbox.ErrNotBuilt.Error()+": ", ""))
		s.say("the workspace is copied for the review: %v", because)
		err := r.Copy(ctx, because)
		if errors.Is(err, review.ErrTooLarge) {
			err = fmt.Errorf("%w; name a smaller directory with -w, or make an overlay possible: %w", err, because)
		}
		if err == nil && r.LeftOut > 0 {
			s.say("%s not in the copy: no files, not readable, or of another file system", display.Count(r.LeftOut, "entry is", "entries are"))
		}
		return err
	}}
	status, settle, err := s.launch(ctx, o, spec)
	err = errors.Join(err, settle()) // an overlay that is mounted cannot be removed
	return status, settled, errors.Join(err, s.endReview(follow(r, person)))
}

// reviewed is a tier whose boxes work on what r keeps: an overlay, or where the tier
// has none, a copy of the workspace.
type reviewed struct {
	sandbox.Tier
	r    *review.Review
	copy func(because error) error
}

// Start implements [sandbox.Tier].
func (t reviewed) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	w := &spec.Workspace
	if w.Mode != sandbox.ReadWrite {
		return nil, fmt.Errorf("%w: the workspace cannot be changed in a box of this profile, so there is nothing to review; use --profile agent, or --rw with the workspace", sandbox.ErrNotBuilt)
	}
	if w.Path != t.r.Workspace {
		return nil, fmt.Errorf("%w: the review is of %s, but what was decided on is %s", sandbox.ErrNotBuilt, t.r.Workspace, w.Path)
	}
	var err error
	if spec.ReadWrite, err = besides(spec); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	w.Upper, w.Work = t.r.Upper, t.r.Work
	b, err := t.Tier.Start(ctx, spec)
	if !errors.Is(err, sandbox.ErrNoOverlay) {
		return b, err
	}
	if err := t.copy(err); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	w.Upper, w.Work, w.Copied = "", "", t.r.Copied
	return t.Tier.Start(ctx, spec)
}

// besides returns what may be changed beside the workspace. What of that is live must
// not be the workspace, a part of it, or what it lies in.
func besides(spec sandbox.Spec) ([]string, error) {
	var others []string
	for _, p := range spec.ReadWrite {
		switch ws := spec.Workspace.Path; {
		case p == ws: // said twice
		case places.Beneath(p, ws):
			return nil, fmt.Errorf("%s is in the workspace, what is changed there is kept apart, and --rw would change it at once: leave it out", p)
		case places.Beneath(ws, p):
			return nil, fmt.Errorf("the workspace is in %s, and --rw of that would change it at once: name the directories beside the workspace", p)
		default:
			others = append(others, p)
		}
	}
	return others, nil
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
	text.WriteString(display.Count(len(all), "change waits", "changes wait") + " in review " + r.ID + " (" + r.How() + "); the workspace is as it was\n")
	for i, c := range all {
		if i == summaryChanges {
			text.WriteString("  … and " + display.Count(len(all)-i, "more", "more") + ": ringfence review list " + r.ID + "\n")
			break
		}
		text.WriteString(changeLine(c))
	}
	s.say("%s  see it:      ringfence review diff %[2]s\n  take it:     ringfence review apply %[2]s\n  give it up:  ringfence review discard %[2]s", text.String(), r.ID)
	return nil
}
