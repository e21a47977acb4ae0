package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/review"
	"ringfence/internal/sys/paths"
)

// newReview is "ringfence review".
func newReview(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "review",
		Short: "Look at what a box changed, and apply it or not",
		Long: "Look at what a box changed, and apply it or not. What runs with --review works on an\n" +
			"overlay of the workspace, or where none can be had on a copy; nothing reaches the\n" +
			"workspace until it is applied. ID may be left out while there is one review.",
	}
	c.AddCommand(newReviewList(s), newReviewDiff(s), newReviewApply(s), newReviewDiscard(s))
	return c
}

// A reviewView is a review as JSON.
type reviewView struct {
	ID        string       `json:"id"`
	Workspace string       `json:"workspace"`
	Session   string       `json:"session,omitempty"`
	Began     time.Time    `json:"began"`
	Running   bool         `json:"running"`
	Kept      string       `json:"kept"`               // "overlay" or "copy"
	Because   string       `json:"because,omitempty"`  // why it is a copy
	LeftOut   int          `json:"left_out,omitempty"` // how much the copy has not
	Changes   []changeView `json:"changes"`
	Error     string       `json:"error,omitempty"` // why the changes cannot be read
}

// A changeView is a change as JSON.
type changeView struct {
	Path     string   `json:"path"`
	Bytes    string   `json:"path_base64,omitempty"` // where the path is not UTF-8
	Kind     string   `json:"kind"`
	Dir      bool     `json:"dir,omitempty"`
	Size     int64    `json:"size"`
	Flags    []string `json:"flags,omitempty"`
	Why      string   `json:"why,omitempty"`
	Conflict string   `json:"conflict,omitempty"`
	Refused  string   `json:"refused,omitempty"`
}

func changeViews(all []review.Change) []changeView {
	views := make([]changeView, 0, len(all))
	for _, c := range all {
		v := changeView{
			Path: c.Path, Kind: string(c.Kind), Dir: c.Dir, Size: c.Size,
			Why: c.Why, Conflict: c.Conflict, Refused: c.Refused,
		}
		if !utf8.ValidString(c.Path) {
			v.Bytes = base64.StdEncoding.EncodeToString([]byte(c.Path))
		}
		for _, f := range c.Flags {
			v.Flags = append(v.Flags, string(f))
		}
		views = append(views, v)
	}
	return views
}

// changeLine is a change for people.
func changeLine(c review.Change) string {
	path := review.Quoted(c.Path)
	if c.Dir {
		path += "/"
	}
	var line strings.Builder
	fmt.Fprintf(&line, "  %-8s  %s", c.Kind, desk.Visible(path, pathWidth))
	for _, f := range c.Flags {
		fmt.Fprintf(&line, "  [%s]", f)
	}
	if c.Why != "" {
		line.WriteString("  " + c.Why)
	}
	for _, note := range []string{c.Conflict, c.Refused} {
		if note != "" {
			line.WriteString("\n            ! " + desk.Visible(note, pathWidth))
		}
	}
	return line.String() + "\n"
}

const pathWidth = 1024 // bytes of a path that a line shows

func viewOf(r *review.Review) reviewView {
	v := reviewView{ID: r.ID, Workspace: r.Workspace, Session: r.Session, Began: r.Began, Running: r.Running(), Kept: r.How(), Because: r.Because, LeftOut: r.LeftOut}
	all, err := r.Changes()
	if err != nil {
		v.Error = err.Error()
	}
	v.Changes = changeViews(all)
	return v
}

func newReviewList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list [ID [PATH…]]",
		Short: "List the reviews that wait, or what one changed",
		RunE: func(_ *cobra.Command, args []string) error {
			home, person, err := reviewHomes()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				r, paths, err := found(home, person, args)
				if err != nil {
					return err
				}
				return s.changes(r, paths)
			}
			all, err := review.List(home, person)
			if err != nil {
				s.say("%v", err) // those that can be read are listed
			}
			views := make([]reviewView, 0, len(all))
			for _, r := range all {
				views = append(views, viewOf(follow(r, person)))
			}
			return s.value(views, func() string { return reviewTable(views) })
		},
		Args: cobra.ArbitraryArgs,
	}
}

func reviewTable(views []reviewView) string {
	if len(views) == 0 {
		return "No review waits. \"ringfence run --review -- CMD\" begins one.\n"
	}
	var b strings.Builder
	for _, v := range views {
		state := display.Count(len(v.Changes), "change", "changes") + " in the " + v.Kept
		if v.LeftOut > 0 {
			state += fmt.Sprintf(" (%d left out)", v.LeftOut)
		}
		switch {
		case v.Error != "":
			state = desk.Visible(v.Error, summaryWidth)
		case v.Running:
			state += ", running"
		}
		if v.Because != "" {
			state += "\n          copied because: " + show(v.Because)
		}
		fmt.Fprintf(&b, "%s  %s  %s  %s\n", v.ID, v.Began.Local().Format("2006-01-02 15:04:05"), show(v.Workspace), state)
	}
	return b.String()
}

// changes prints what waits in r at paths.
func (s *streams) changes(r *review.Review, paths []string) error {
	all, err := r.Changes()
	if err != nil {
		return applyHint(err, r.ID)
	}
	if all, err = (review.Selection{Paths: paths}).Of(all); err != nil {
		return changeHint(err, r, paths)
	}
	return s.value(changeViews(all), func() string {
		var b strings.Builder
		for _, c := range all {
			b.WriteString(changeLine(c))
		}
		return b.String()
	})
}

func newReviewDiff(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [ID [PATH…]]",
		Short: "Show what changed, line by line",
		Long: "Show what changed, line by line. Characters without a shape are shown as escapes.\n" +
			"Paths are those in the workspace, as \"ringfence review list ID\" has them.",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			home, person, err := reviewHomes()
			if err != nil {
				return err
			}
			r, paths, err := found(home, person, args)
			if err != nil {
				return err
			}
			if s.json {
				var b strings.Builder
				if err := r.Diff(&b, review.Selection{Paths: paths}); err != nil {
					return changeHint(err, r, paths)
				}
				return s.line(map[string]string{"id": r.ID, "diff": b.String()})
			}
			return changeHint(r.Diff(s.out, review.Selection{Paths: paths}), r, paths)
		},
	}
}

func newReviewApply(s *streams) *cobra.Command {
	var sel review.Selection
	c := &cobra.Command{
		Use:   "apply [ID [PATH…]]",
		Short: "Make the workspace as the box left it, all or some of it",
		Long: "Make the workspace as the box left it, all or some of it. What was changed outside\n" +
			"since the box began is a conflict and is not overwritten. Files that this machine runs\n" +
			"or obeys later are applied only if each is named, or with --with-runs-later. No file\n" +
			"becomes setuid. An apply that was interrupted can be repeated.",
		Example:     "  ringfence review apply r-abc234\n  ringfence review apply r-abc234 src .envrc",
		Args:        cobra.ArbitraryArgs,
		Annotations: exits(status{codeFailed, "something was not applied: a conflict, a file that runs later, or one that cannot be"}),
		RunE: func(c *cobra.Command, args []string) error {
			r, paths, err := opened(args)
			if err != nil {
				return err
			}
			sel.Paths = paths
			if err := recordReview(c.Context(), r, "apply", sel); err != nil {
				return errors.Join(err, r.Close())
			}
			out, err := r.Apply(sel)
			if err == nil && out.Left == 0 {
				err = r.Remove()
			}
			err = errors.Join(changeHint(err, r, paths), r.Close())
			if err != nil && len(out.Applied) == 0 {
				return err // nothing has come of it, so there is no result
			}
			if perr := s.value(outcomeView(r, out), func() string { return outcomeText(r, out) }); perr != nil || err != nil {
				return errors.Join(err, perr)
			}
			if len(out.Conflicts)+len(out.Held)+len(out.Refused) > 0 {
				return &exitError{code: codeFailed}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&sel.RunsLater, "with-runs-later", false, "also files that this machine runs or obeys later")
	c.Flags().BoolVar(&sel.Force, "force", false, "overwrite what was changed outside")
	return c
}

// recordReview puts on record what is about to be done. A path that is not UTF-8, which
// no record can hold, is named as a Go string.
func recordReview(ctx context.Context, r *review.Review, action string, sel review.Selection) error {
	sel.Paths = slices.Clone(sel.Paths)
	for i, p := range sel.Paths {
		if !utf8.ValidString(p) {
			sel.Paths[i] = review.Quoted(p)
		}
	}
	return with(ctx, connect, func(e *api.Client) error {
		return e.RecordReview(ctx, api.ReviewRecord{
			Review: r.ID, Session: r.Session, Workspace: r.Workspace, Action: action, Paths: sel.Paths, RunsLater: sel.RunsLater, Force: sel.Force,
		})
	})
}

func outcomeView(r *review.Review, o review.Outcome) any {
	return map[string]any{
		"id": r.ID, "workspace": r.Workspace, "left": o.Left, "applied": changeViews(o.Applied),
		"conflicts": changeViews(o.Conflicts), "held": changeViews(o.Held), "refused": changeViews(o.Refused),
	}
}

func outcomeText(r *review.Review, o review.Outcome) string {
	var b strings.Builder
	for _, part := range []struct {
		title string
		all   []review.Change
		hint  string
	}{
		{"Applied:", o.Applied, ""},
		{"Changed outside meanwhile, not applied:", o.Conflicts, "\"--force\" overwrites what is there."},
		{"Run or obeyed later by this machine, not applied:", o.Held, "Name each, or use \"--with-runs-later\"."},
		{"Cannot be applied:", o.Refused, "They stay in the review: \"ringfence review discard " + r.ID + " PATH\" gives them up, or take them by hand from " + show(r.Left()) + "."},
	} {
		if len(part.all) == 0 {
			continue
		}
		b.WriteString(part.title + "\n")
		for _, c := range part.all {
			b.WriteString(changeLine(c))
		}
		if part.hint != "" {
			b.WriteString(part.hint + "\n")
		}
	}
	if o.Left == 0 {
		b.WriteString("Nothing is left of review " + r.ID + ".\n")
	} else {
		fmt.Fprintf(&b, "%s left in review %s.\n", display.Count(o.Left, "change is", "changes are"), r.ID)
	}
	return b.String()
}

func newReviewDiscard(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "discard [ID [PATH…]]",
		Short: "Give up what the box changed, all or some of it",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			r, paths, err := opened(args)
			if err != nil {
				return err
			}
			if err := recordReview(c.Context(), r, "discard", review.Selection{Paths: paths}); err != nil {
				return errors.Join(err, r.Close())
			}
			if len(paths) == 0 { // also where the changes cannot be read
				if err := errors.Join(r.Remove(), r.Close()); err != nil {
					return err
				}
				return s.value(map[string]any{"id": r.ID, "left": 0}, func() string { return "Review " + r.ID + " is discarded.\n" })
			}
			gone, left, err := r.Discard(review.Selection{Paths: paths})
			if err == nil && left == 0 {
				err = r.Remove()
			}
			if err = errors.Join(changeHint(err, r, paths), r.Close()); err != nil {
				return err
			}
			return s.value(map[string]any{"id": r.ID, "left": left, "discarded": changeViews(gone)}, func() string {
				return fmt.Sprintf("%s discarded, %d left in review %s.\n", display.Count(len(gone), "change is", "changes are"), left, r.ID)
			})
		},
	}
}

// reviewHomes returns the home of the installation and that of the person.
func reviewHomes() (home, person string, err error) {
	if home, err = paths.EnsureHome(); err != nil {
		return "", "", err
	}
	person, err = paths.UserHome()
	return home, person, err
}

// found returns the review that args begin with, or the only one, and the paths in it.
func found(home, person string, args []string) (*review.Review, []string, error) {
	all, err := review.List(home, person)
	if len(args) > 0 {
		for _, r := range all {
			if r.ID == args[0] {
				inside, err := withinWorkspace(r, args[1:])
				return follow(r, person), inside, err
			}
		}
		if err == nil {
			err = fmt.Errorf("%w: %q", review.ErrNoReview, args[0])
		}
		return nil, nil, reviewHint(err)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case len(all) == 1:
		return follow(all[0], person), nil, nil
	case len(all) == 0:
		return nil, nil, &exitError{code: codeFailed, err: errors.New("no review waits"), hint: `"ringfence run --review -- CMD" begins one`}
	}
	return nil, nil, &exitError{code: codeFailed, err: fmt.Errorf("there are %d reviews: which is meant?", len(all)), hint: `"ringfence review list" lists them`}
}

// opened is found, in use.
func opened(args []string) (*review.Review, []string, error) {
	home, person, err := reviewHomes()
	if err != nil {
		return nil, nil, err
	}
	r, inside, err := found(home, person, args)
	if err != nil {
		return nil, nil, err
	}
	if r, err = review.Open(home, person, r.ID); err != nil {
		return nil, nil, reviewHint(err)
	}
	return follow(r, person), inside, nil
}

// withinWorkspace makes paths those in the workspace of r.
func withinWorkspace(r *review.Review, named []string) ([]string, error) {
	var inside []string
	for _, p := range named {
		rel := filepath.Clean(p)
		if filepath.IsAbs(p) {
			var err error
			if rel, err = filepath.Rel(r.Workspace, rel); err != nil {
				return nil, err
			}
		}
		if rel == ".." || strings.HasPrefix(rel, "../") {
			return nil, &exitError{code: codeUsage, err: fmt.Errorf("%s is not in the workspace %s", p, r.Workspace)}
		}
		inside = append(inside, rel)
	}
	return inside, nil
}

func reviewHint(err error) error {
	switch {
	case errors.Is(err, review.ErrNoReview):
		return &exitError{code: codeFailed, err: err, hint: `"ringfence review list" lists them`}
	case errors.Is(err, review.ErrRunning):
		return &exitError{code: codeFailed, err: err, hint: "wait until it has ended"}
	}
	return err
}

// changeHint is applyHint, which names the change that was probably meant by a path
// without one.
func changeHint(err error, r *review.Review, named []string) error {
	if !errors.Is(err, review.ErrNoChange) {
		return applyHint(err, r.ID)
	}
	all, cerr := r.Changes()
	if cerr != nil {
		return applyHint(err, r.ID)
	}
	var changed, bases []string
	for _, c := range all {
		changed, bases = append(changed, c.Path), append(bases, filepath.Base(c.Path))
	}
	for _, p := range named {
		if _, err := (review.Selection{Paths: []string{p}}).Of(all); err == nil {
			continue
		}
		near := nearest(p, changed)
		if i := slices.Index(bases, nearest(filepath.Base(p), bases)); near == "" && i >= 0 {
			near = changed[i]
		}
		if near != "" {
			return &exitError{code: codeFailed, err: fmt.Errorf("%w; did you mean %s?", err, review.Quoted(near)), hint: fmt.Sprintf("\"ringfence review list %s\" says what changed", r.ID)}
		}
	}
	return applyHint(err, r.ID)
}

// applyHint says what can be done about an error of reading or applying changes.
func applyHint(err error, id string) error {
	discard := fmt.Sprintf("\"ringfence review discard %s\" gives it up", id)
	for _, h := range []struct {
		is   error
		hint string
	}{
		{review.ErrNoChange, fmt.Sprintf("\"ringfence review list %s\" says what changed", id)},
		{review.ErrMoved, "something still writes to it; run it again when that has ended"},
		{review.ErrWorkspace, "put the workspace back where it was, or " + discard},
		{review.ErrClock, "set the clock, or " + discard},
		{review.ErrTooMuch, discard},
	} {
		if errors.Is(err, h.is) {
			return &exitError{code: codeFailed, err: err, hint: h.hint}
		}
	}
	return err
}
