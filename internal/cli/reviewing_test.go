package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/review"
	"ringfence/internal/sandbox"
)

// fussy is a tier that has no overlays, or nothing at all.
type fussy struct {
	sandbox.Tier
	err  error // of a box with an overlay
	seen []sandbox.Workspace
	live []string
}

func (f *fussy) Start(_ context.Context, s sandbox.Spec) (sandbox.Box, error) {
	f.seen, f.live = append(f.seen, s.Workspace), s.ReadWrite
	if s.Workspace.Upper != "" {
		return nil, f.err
	}
	return nil, nil
}

// TestReviewedFallsBack: the workspace is copied where the tier says that it has no
// overlay, and only then; never is the live tree given in its place.
func TestReviewedFallsBack(t *testing.T) {
	needsReviews(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := root + "/ws"
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	live := sandbox.Workspace{Path: ws, Mode: sandbox.ReadWrite}
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		err, copied error
		spec        sandbox.Workspace
		write       string // beside it
		want        string // ways of the boxes that were tried
		fails       string
	}{
		"no overlay":          {errors.Join(sandbox.ErrNotBuilt, sandbox.ErrNoOverlay), nil, live, "", "overlay copy", ""},
		"overlay":             {nil, nil, live, "", "overlay", ""},
		"no box":              {sandbox.ErrNotBuilt, nil, live, "", "overlay", "not built"},
		"no room":             {sandbox.ErrNoOverlay, full, live, "", "overlay", "disk full"},
		"nothing to change":   {nil, nil, sandbox.Workspace{Path: ws, Mode: sandbox.ReadOnly}, "", "", "--profile agent"},
		"something else":      {nil, nil, sandbox.Workspace{Path: root, Mode: sandbox.ReadWrite}, "", "", "decided on is"},
		"too large to copy":   {sandbox.ErrNoOverlay, review.ErrTooLarge, live, "", "overlay", "too much to copy"},
		"no workspace at all": {nil, nil, sandbox.Workspace{}, "", "", "nothing to review"},
		"all of it, live":     {nil, nil, live, ws, "overlay", ""},
		"something beside":    {nil, nil, live, root + "/wsx", "overlay", ""},
		"a part of it, live":  {nil, nil, live, ws + "/sub", "", "is in the workspace"},
		"what it lies in":     {nil, nil, live, root, "", "the workspace is in"},
	} {
		r, err := review.New(review.Options{Home: root + "/home", Workspace: ws})
		if err != nil {
			t.Fatal(err)
		}
		tier := &fussy{err: c.err}
		_, err = reviewed{tier, r, func(because error) error {
			if c.copied != nil {
				return c.copied
			}
			return r.Copy(t.Context(), because)
		}}.Start(t.Context(), sandbox.Spec{Workspace: c.spec, ReadWrite: []string{c.write}})
		if slices.Contains(tier.live, ws) {
			t.Errorf("%s: the workspace is writable", name)
		}
		var ways []string
		for _, w := range tier.seen {
			switch {
			case w.Upper == r.Upper && w.Copied == "":
				ways = append(ways, "overlay")
			case w.Upper+w.Work == "" && w.Copied != "" && w.Copied == r.Copied:
				ways = append(ways, "copy")
			default:
				t.Errorf("%s: a box with %+v", name, w)
			}
		}
		if got := strings.Join(ways, " "); got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := errors.Join(r.Remove(), r.Close()); err != nil {
			t.Error(err)
		}
	}
}
