package boxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/sandbox"
)

// patience is how long one box may take in all.
const patience = 2 * time.Minute

// programs are where the boxes look for them.
var programs = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/go/bin", "/usr/lib/go/bin"}

// lookIn returns which of the programs that the cases need are not in the image that
// the boxes have. The box that looks is no case.
func (s *suite) lookIn(ctx context.Context, runs []run) (absent map[string]bool, err error) {
	absent = map[string]bool{}
	for _, r := range runs {
		for _, p := range r.Programs {
			absent[p] = true
		}
	}
	if len(absent) == 0 {
		return absent, nil
	}
	out, err := sandbox.Run(ctx, s.tier, sandbox.Spec{
		Argv: append([]string{"/bin/sh", "-c", `for p; do if command -v "$p" >/dev/null; then echo "$p"; fi; done`, "sh"}, slices.Sorted(maps.Keys(absent))...),
		Env:  []string{"PATH=" + strings.Join(programs, ":")},
	}, nil)
	if err == nil && out.Exit.Status() != 0 {
		err = fmt.Errorf("it ended with %s: %.300s", out.Exit, out.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for programs in the image: %w", err)
	}
	for p := range strings.Lines(string(out.Stdout)) {
		delete(absent, strings.TrimSpace(p))
	}
	return absent, nil
}

// lookHere is the same for boxes that have the programs of this machine.
func lookHere(runs []run) (absent map[string]bool) {
	absent = map[string]bool{}
	for _, r := range runs {
		for _, p := range r.Programs {
			absent[p] = !slices.ContainsFunc(programs, func(dir string) bool {
				if filepath.IsAbs(p) {
					dir = ""
				}
				_, err := os.Stat(filepath.Join(dir, p))
				return err == nil
			})
		}
	}
	return absent
}

// one runs one case. The error is that the suite is broken, not the box.
func (s *suite) one(ctx context.Context, r run) (o Outcome, err error) {
	o = Outcome{ID: r.ID, Name: r.Name, N: r.n, Class: r.Class, Place: r.place.String(), proves: r.Proves}
	for _, p := range r.Programs {
		if s.absent[p] {
			o.Verdict, o.Why = Skipped, []string{p + " is not there"}
			return o, nil
		}
	}
	w, err := s.newWorld(ctx, r)
	if err != nil {
		return o, fmt.Errorf("%s: making its world: %w", o, err)
	}
	defer w.end()
	spec, err := s.spec(r, w)
	if err != nil {
		return o, fmt.Errorf("%s: %w", o, err)
	}
	own, err := w.give(r, &spec)
	if err != nil {
		return o, fmt.Errorf("%s: %w", o, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	knocked := w.knock(ctx, r, s.probe)
	began := time.Now()
	out, runErr := sandbox.Run(ctx, s.tier, spec, nil)
	o.Took, o.Report = time.Since(began), out.Report
	o.Why = slices.Concat(own(runErr == nil), w.survivors(), knocked())
	o.Why = append(o.Why, w.ask()...)
	changed, err := w.compare(r.leaves(spec), spec.Workspace.Mode == sandbox.ReadWrite)
	if err != nil {
		return o, fmt.Errorf("%s: looking at its world: %w", o, err)
	}
	o.Why = append(append(o.Why, changed...), w.leftovers()...)
	if lack := s.lacks(r); len(lack) > 0 {
		o.settleLack(lack, runErr)
		return o, nil
	}
	o.settle(r, w, out, runErr)
	return o, nil
}

// settle comes to the verdict.
func (o *Outcome) settle(r run, w *world, out sandbox.Output, err error) {
	if r.Claimed != "" && err == nil && !slices.Contains(claims(out.Report), r.Claimed) {
		o.Verdict, o.Why = Unclaimed, []string{"its Report does not claim " + r.Claimed}
		return
	}
	switch {
	case errors.Is(err, sandbox.ErrNotBuilt) && r.Needs != "" && len(o.Why) == 0:
		o.Verdict, o.Why = Refused, []string{err.Error()}
		return
	case err != nil:
		o.Why = append(o.Why, "the box: "+err.Error())
	default:
		o.Why = append(o.Why, o.judge(r, w, out)...)
	}
	if len(o.Why) == 0 {
		o.Verdict = Held
		return
	}
	if lost := claimed(out.Report, r.Proves); len(lost) > 0 {
		o.Why = append(o.Why, "the Report claims "+strings.Join(lost, ", ")+", and this contradicts it")
	}
	o.Verdict = Broken
	if r.Class == Harmless && r.Needs != "" && err == nil && !slices.Contains(claims(out.Report), r.Needs) {
		o.Verdict = Missing // what honest work lacks is no confinement that a Spec needs
	}
	if r.Needs != "" && slices.ContainsFunc(out.Report.Missing, func(l string) bool { return l == r.Needs || strings.HasPrefix(l, r.Needs+"=") }) {
		o.Verdict = Missing
	}
}

// judge says what is wrong with the answers and the end of a box.
func (o *Outcome) judge(r run, w *world, out sandbox.Output) (wrong []string) {
	heard := map[int]bool{}
	if r.Script != "" {
		o.Answers = strings.Split(strings.TrimSpace(string(out.Stdout)+string(out.Stderr)), "\n")
	}
	for line := range strings.Lines(string(out.Stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		n, err := strconv.Atoi(f[0])
		if err != nil || len(f) < 3 || n < 1 || n > len(r.Steps) {
			continue
		}
		step := r.Steps[n-1]
		heard[n] = true
		o.Answers = append(o.Answers, f[1]+" "+strings.ReplaceAll(f[2], "\t", " "))
		if !step.Prepares && !slices.Contains(step.Pass, f[1]) {
			wrong = append(wrong, fmt.Sprintf("the kernel answered %s to %s, not %s", f[1], strings.ReplaceAll(f[2], "\t", " "), strings.Join(step.Pass, " ")))
		}
	}
	for i, step := range r.Steps {
		if !heard[i+1] && !step.Prepares && !slices.Contains(step.Pass, "-") {
			wrong = append(wrong, "no answer to "+strings.Join(step.Words, " "))
		}
	}
	if want := strings.ReplaceAll(r.Exit, "$N", strconv.Itoa(r.n)); want != "any" && !slices.Contains(strings.Split(want, "|"), out.Exit.String()) {
		wrong = append(wrong, fmt.Sprintf("it ended with %s, not %s; %.300q", out.Exit, want, string(out.Stderr)+strings.Join(o.Answers, "\n")))
	}
	if r.Stdout != "" && string(out.Stdout) != r.Stdout {
		wrong = append(wrong, fmt.Sprintf("its output is %.300q, not %q", out.Stdout, r.Stdout))
	}
	for what, text := range map[string][]byte{"output": out.Stdout, "error output": out.Stderr} {
		if bytes.Contains(text, []byte(w.secret)) || bytes.Contains(text, []byte("canary-bait")) {
			wrong = append(wrong, "its "+what+" has the secret of the world outside")
		}
	}
	return wrong
}

// leaves are the patterns of what may differ afterwards. Sockets and the like in the
// workspace are none of ours.
func (r run) leaves(s sandbox.Spec) []string {
	if s.Workspace.Mode != sandbox.ReadWrite {
		return nil
	}
	if r.Script != "" {
		return append(slices.Clone(r.Leaves), "rw/")
	}
	return r.Leaves
}

// spec makes the Spec of a case.
func (s *suite) spec(r run, w *world) (sandbox.Spec, error) {
	spec := sandbox.Spec{
		Env:     []string{"PATH=" + strings.Join(programs, ":"), "BOXTEST_MARK=" + w.mark},
		Profile: r.place.Profile, Limits: r.Limits, ReadOnly: []string{w.path("ro")},
	}
	if r.place.Mode != sandbox.NoAccess {
		spec.Workspace = sandbox.Workspace{Path: w.path("ws"), Mode: r.place.Mode}
	}
	if r.place.Mode == sandbox.ReadWrite {
		spec.ReadWrite = []string{w.path("rw")}
		spec.LaterWritable = s.o.NoHolds && r.Needs != "holds"
		if !spec.LaterWritable {
			spec.Held = []string{w.path("ws/held"), w.path("ws/hdir/inner/held"), w.path("ws/held-new")}
		}
	}
	if slices.Contains(r.World, "rules") {
		for i := range 1000 {
			spec.Held = append(spec.Held, w.path("ws/rule-"+strconv.Itoa(i+1)))
		}
	}
	if slices.Contains(r.World, "denied") {
		spec.Denied = []string{w.path("ro/denied"), w.path("ws/denied"), w.path("ws/denied-new")}
	}
	if r.Network {
		spec.Network, spec.Egress = sandbox.NetworkPolicy, w.path("run/bus")
	}
	if r.Script != "" {
		for _, name := range []string{"WS", "OUT", "RW", "RO", "MARK", "PROBE"} {
			spec.Env = append(spec.Env, name+"="+w.vars[name])
		}
		temp := "/tmp"
		if r.place.Mode == sandbox.ReadWrite {
			temp = w.path("rw")
		}
		spec.Env = append(spec.Env, "HOME="+temp, "TMPDIR="+temp)
		spec.Argv = []string{"/bin/sh", "-c", r.Script}
		return spec, nil
	}
	spec.Argv = []string{w.vars["PROBE"]}
	for i, step := range r.Steps {
		if i > 0 {
			spec.Argv = append(spec.Argv, ",")
		}
		for k, word := range step.Words {
			filled, err := w.fill(word)
			if err != nil {
				return spec, err
			}
			if k == 0 && step.Prepares {
				filled = "~" + filled
			}
			spec.Argv = append(spec.Argv, filled)
		}
	}
	return spec, nil
}

// knock lets somebody outside try to connect to a port while the box runs. What it
// returns waits for that and says what is wrong.
func (w *world) knock(ctx context.Context, r run, probe string) func() []string {
	if !r.Knock {
		return func() []string { return nil }
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, probe, "knock", "127.0.0.1", w.vars["FREE"])
	cmd.Stdout, cmd.Dir = &out, filepath.Dir(probe)
	if err := cmd.Start(); err != nil {
		return func() []string { return []string{"knocking from outside: " + err.Error()} }
	}
	return func() []string {
		if err := cmd.Wait(); err != nil {
			return []string{"knocking from outside: " + err.Error()}
		}
		if !strings.Contains(out.String(), "\tnone\t") {
			return []string{"somebody outside got in: " + strings.TrimSpace(out.String())}
		}
		return nil
	}
}
