package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"ringfence/internal/review"
)

// TestReview goes through a review as a person does, with what each verb says: "%" is
// the id of the review, and a line of want may be any part of the text.
func TestReview(t *testing.T) {
	needsReviews(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, ws := root+"/home", root+"/ws"
	t.Setenv("RINGFENCE_HOME", home)
	t.Setenv("HOME", root)
	if err := errors.Join(os.Mkdir(ws, 0o755), os.WriteFile(ws+"/old", []byte("old\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r, err := review.New(review.Options{Home: home, Person: root, Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"new": "text\x1b[2J\n", ".envrc": "evil\n", "Makefile": "all:\n", "a": "a\n", "clash": "box\n", "n\nl \x1b[2J\u202e": "", "fake  [build-file]": "", "caf\xe9": ""} {
		if err := os.WriteFile(r.Upper+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := command("review", "apply", r.ID); code != codeFailed || out != "" || !strings.Contains(errs, "its box still runs") {
		t.Errorf("while it runs: %d %q %q", code, out, errs)
	}
	if err := errors.Join(r.Close(), os.WriteFile(ws+"/clash", []byte("person\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"review list", 0, ws + "  8 changes in the overlay"},
		{"review list %", 0, "added     .envrc  [runs-later]\nadded     Makefile  [build-file]  make runs it\nmodified  clash\n! it was changed outside"},
		{"review list %", 0, `added     "n\nl \x1b[2J\u202e"` + "\n" + `added     "fake  [build-file]"`},
		{"review list --json", 0, `"kind":"added","size":5,"flags":["runs-later"]`},
		{"review diff % new", 0, `+text\u{1b}[2J`},
		{"review diff % nothing", codeFailed, "no change there\nringfence review list %"},
		{"review diff r-nosuch", codeFailed, `no such review`},
		{"review apply % clsh", codeFailed, "no change there: clsh; did you mean clash?"},
		{"review discard % makefile", codeFailed, "did you mean Makefile?"},
		{"review apply % ../x", codeUsage, "not in the workspace"},
		{"review apply % " + ws + "/a", 0, "Applied:\nadded     a\n7 changes are left in review %."},
		{"review apply % caf\xe9", 0, `added     "caf\xe9"` + "\n6 changes are left"},
		{"review list % nothing\x1b\xff", codeFailed, `no change there: "nothing\x1b\xff"`},
		{"ledger show --json", 0, `"paths":["\"caf\\xe9\""]`},
		{"review discard % new", 0, "1 change is discarded, 5 left"},
		{"review apply", codeFailed, "Applied:\nMakefile\nChanged outside meanwhile\nclash\nRun or obeyed later\n.envrc\n--with-runs-later\n2 changes are left"},
		{"review apply % --force clash", 0, "Applied:\nclash"},
		{"review apply % .envrc --json", 0, `"left":0`},
		{"review list", 0, "No review waits."},
		{"review diff", codeFailed, "no review waits"},
	} {
		code, out, errs := command(strings.Fields(strings.ReplaceAll(c.args, "%", r.ID))...)
		if code != c.code {
			t.Errorf("%s: status %d, want %d\n%s%s", c.args, code, c.code, out, errs)
		}
		if strings.Contains(errs, "no change there") && out != "" {
			t.Errorf("%s: nothing was done, but the result is %q", c.args, out)
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(c.want, "%", r.ID), "\n") {
			if !strings.Contains(out+errs, part) {
				t.Errorf("%s: no %q in\n%s%s", c.args, part, out, errs)
			}
		}
	}
	names, err := os.ReadDir(ws)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range names {
		all = append(all, n.Name())
	}
	if got := strings.Join(all, " "); !strings.HasPrefix(got, ".envrc Makefile a caf\xe9 clash fake  [build-file] n\nl ") {
		t.Errorf("the workspace has %s", got)
	}
	if b, err := os.ReadFile(ws + "/clash"); string(b) != "box\n" {
		t.Errorf("clash: %q, %v", b, err)
	}
	for range 2 { // which one is meant is no question of how the command is written, as with none
		r, err := review.New(review.Options{Home: home, Person: root, Workspace: ws})
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := command("review", "diff"); code != codeFailed || out != "" || !strings.Contains(errs, "there are 2 reviews: which is meant?") {
		t.Errorf("with two: %d %q %q", code, out, errs)
	}
}

func command(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = Main(args, nil, &o, &e)
	return code, o.String(), e.String()
}

// TestEndReview: what a box has left behind is told when it has ended, and a review
// without changes is none.
func TestEndReview(t *testing.T) {
	needsReviews(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for changes, want := range map[int]string{
		0: `^$`, 1: `(?s)^ringfence: 1 change waits in review (r-\w+) \(overlay\); .*f0.*review diff r-\w+\n.*review apply r-\w+\n.*review discard r-\w+\n$`,
		22: `(?s)22 changes wait .* … and 2 more: ringfence review list`,
	} {
		ws := filepath.Join(root, "ws")
		if err := os.MkdirAll(ws, 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := review.New(review.Options{Home: root + "/home", Workspace: ws})
		if err != nil {
			t.Fatal(err)
		}
		for i := range changes {
			if err := os.WriteFile(r.Upper+"/f"+string(rune('0'+i)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var errs bytes.Buffer
		s := &streams{out: &sink{w: new(bytes.Buffer)}, err: &sink{w: &errs}}
		if err := s.endReview(r); err != nil || !regexp.MustCompile(want).MatchString(errs.String()) {
			t.Errorf("%d changes: %v %q", changes, err, errs.String())
		}
		left, err := review.List(root+"/home", "")
		if err != nil || (len(left) == 0) != (changes == 0) {
			t.Errorf("%d changes: %d reviews, %v", changes, len(left), err)
		}
		for _, l := range left {
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReviewHints: what nothing of can be read or applied says what can be done.
func TestReviewHints(t *testing.T) {
	for want, err := range map[string]error{
		"list r-abc234": review.ErrNoChange, "run it again": review.ErrMoved, "put the workspace back": review.ErrWorkspace,
		"set the clock": review.ErrClock, "discard r-abc234": review.ErrTooMuch,
	} {
		var exit *exitError
		if got := applyHint(errors.Join(errors.New("applying"), err), "r-abc234"); !errors.As(got, &exit) || !strings.Contains(exit.hint, want) {
			t.Errorf("%v: %+v", err, exit)
		}
	}
	if err := errors.New("disk full"); !errors.Is(applyHint(err, "r-abc234"), err) {
		t.Error("another error is not kept")
	}
}

// TestReviewFollows: what the configuration of the workspace has git run is marked and
// held back, wherever it lies; and all is where that cannot be told.
func TestReviewFollows(t *testing.T) {
	needsReviews(t)
	for hooks, want := range map[string]string{"tools/hooks": "1 change is left", "..": "2 changes are left"} {
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		home, ws := root+"/home", root+"/ws"
		t.Setenv("RINGFENCE_HOME", home)
		t.Setenv("HOME", root)
		config := "[core]\n\trepositoryformatversion = 0\n\thooksPath = " + hooks + "\n"
		err = errors.Join(os.MkdirAll(ws+"/.git/objects", 0o755), os.Mkdir(ws+"/.git/refs", 0o755), os.MkdirAll(ws+"/tools/hooks", 0o755),
			os.WriteFile(ws+"/.git/HEAD", []byte("ref: refs/heads/main\n"), 0o644), os.WriteFile(ws+"/.git/config", []byte(config), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		r, err := review.New(review.Options{Home: home, Person: root, Workspace: ws})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.MkdirAll(r.Upper+"/tools/hooks", 0o755), os.WriteFile(r.Upper+"/tools/hooks/pre-commit", []byte("evil"), 0o755),
			os.WriteFile(r.Upper+"/fine", nil, 0o644), r.Close())
		if err != nil {
			t.Fatal(err)
		}
		if code, out, errs := command("review", "apply"); code != codeFailed || !strings.Contains(out, want) || !strings.Contains(out, "tools/hooks/pre-commit  [runs-later]") {
			t.Errorf("%s: %d %s%s", hooks, code, out, errs)
		}
		if _, err := os.Stat(ws + "/tools/hooks/pre-commit"); err == nil {
			t.Errorf("%s: the hook is there", hooks)
		}
	}
}

// needsReviews skips a test on systems that have no reviews; none of those is for CI.
func needsReviews(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs Linux: reviews are made of overlays")
		}
		t.Skip("needs Linux: reviews are made of overlays")
	}
}
