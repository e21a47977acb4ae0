// Package doctor finds out what a tier of boxes really holds on this machine, by
// attacking from inside one.
//
// It is not the suite that every tier must pass before a release, which is package
// boxtest: it is what a person can run, in a second, on the machine that counts. It
// changes nothing outside a directory of its own.
//
// Invariants:
//
//	X1  An attack that got through is told as that, whatever the box reports of
//	    itself.
//	X2  What was not tried is not said to hold.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/ipc"
)

// System is the kind of this machine: "linux/amd64".
func System() string { return runtime.GOOS + "/" + runtime.GOARCH }

// Advice is what to use in production on a machine of this kind, "" where nothing
// is known of it.
func Advice() string {
	switch runtime.GOOS {
	case "linux":
		return "In production on Linux: native; add container for untrusted workloads."
	case "darwin":
		return "In production on macOS: container, or ringfence in a Linux container."
	case "windows":
		return "In production on Windows: container."
	}
	return ""
}

// A Trial is one thing that was tried in a box.
type Trial struct {
	Name   string `json:"name"`   // "read a file outside"
	Attack bool   `json:"attack"` // it must fail; else it must work
	Worked bool   `json:"worked"`
	Answer string `json:"answer"` // of the kernel: "permission denied"
}

// Good reports whether it came out as it must.
func (t Trial) Good() bool { return t.Attack != t.Worked }

// A Finding is what there is to say of one tier.
type Finding struct {
	Tier   string         `json:"tier"`
	Report sandbox.Report `json:"report"`
	Trials []Trial        `json:"trials,omitempty"`
	Error  string         `json:"error,omitempty"` // why no box could be built, and what to do
}

// Holds reports whether the box is complete and every trial came out as it must.
func (f Finding) Holds() bool {
	for _, t := range f.Trials {
		if !t.Good() {
			return false
		}
	}
	return f.Error == "" && len(f.Trials) > 0 && f.Report.Confines()
}

// A world is what there is outside the box to attack. It is told to the attacker.
type world struct {
	Workspace string `json:"workspace"`
	File      string `json:"file"`   // readable and writable by us
	Dir       string `json:"dir"`    // that it is in
	Socket    string `json:"socket"` // listening
	PID       int    `json:"pid"`    // us
}

// secret is in the file outside, and in our environment as it is not in the box's.
const secret = "RINGFENCE_DOCTOR_CANARY"

// limit is how long one box may take.
const limit = 30 * time.Second

// Examine attacks from inside a box of t. program is our own, which serves [Attack]
// when it is run with the words of attack before its arguments.
func Examine(ctx context.Context, t sandbox.Tier, program string, attack ...string) Finding {
	f := Finding{Tier: t.Name()}
	if err := f.examine(ctx, t, program, attack); err != nil {
		f.Error = err.Error()
	}
	return f
}

func (f *Finding) examine(ctx context.Context, t sandbox.Tier, program string, attack []string) (err error) {
	w, end, err := newWorld()
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	told, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	before, err := os.Stat(w.File)
	beside, listErr := os.ReadDir(w.Dir)
	if err := errors.Join(err, listErr); err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	out, err := sandbox.Run(ctx, t, sandbox.Spec{
		Argv: append(append([]string{program}, attack...), string(told)), Profile: sandbox.ProfileAgent,
		Workspace: sandbox.Workspace{Path: w.Workspace, Mode: sandbox.ReadWrite},
		Limits:    sandbox.Limits{Wall: limit, Output: 1 << 20},
	}, nil)
	if err != nil {
		return err
	}
	f.Report = out.Report
	if err := json.Unmarshal(out.Stdout, &f.Trials); err != nil || len(f.Trials) == 0 {
		return fmt.Errorf("the attacker in the box ended with %s and said %q", out.Exit, cut(out.Stderr, out.Stdout))
	}
	f.Trials = append(f.Trials, untouched(w, before, len(beside)))
	return nil
}

func cut(parts ...[]byte) string {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return string(all[:min(len(all), 300)])
}

// untouched looks from outside at what the attacker may have changed.
func untouched(w world, before os.FileInfo, beside int) Trial {
	t := Trial{Name: "leave a mark outside", Attack: true, Answer: "the file outside is as it was"}
	after, err := os.Stat(w.File)
	content, readErr := os.ReadFile(w.File)
	switch {
	case err != nil || readErr != nil:
		t.Worked, t.Answer = true, "the file outside is gone"
	case string(content) != secret || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()):
		t.Worked, t.Answer = true, "the file outside was changed"
	}
	if names, err := os.ReadDir(w.Dir); err != nil || len(names) != beside {
		t.Worked, t.Answer = true, fmt.Sprintf("there are %d names beside it, not %d", len(names), beside)
	}
	return t
}

// newWorld makes a world in a directory that end removes.
func newWorld() (w world, end func() error, err error) {
	dir, err := os.MkdirTemp("", "ringfence-doctor-")
	if err != nil {
		return world{}, nil, err
	}
	end = func() error { return os.RemoveAll(dir) }
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return world{}, nil, errors.Join(err, end())
	}
	w = world{Workspace: filepath.Join(dir, "work"), Dir: filepath.Join(dir, "outside"), PID: os.Getpid()}
	w.File, w.Socket = filepath.Join(w.Dir, "file"), filepath.Join(w.Dir, "socket")
	git := filepath.Join(w.Workspace, ".git") // the least that git takes for a repository
	err = errors.Join(
		os.Mkdir(w.Workspace, 0o700), os.Mkdir(git, 0o700), os.Mkdir(filepath.Join(git, "objects"), 0o700),
		os.Mkdir(filepath.Join(git, "refs"), 0o700), write(filepath.Join(git, "HEAD"), "ref: refs/heads/main\n"),
		os.Mkdir(w.Dir, 0o700), write(w.File, secret))
	if err != nil {
		return world{}, nil, errors.Join(err, end())
	}
	l, err := ipc.Listen(w.Socket)
	if err != nil {
		return world{}, nil, errors.Join(err, end())
	}
	return w, func() error { return errors.Join(l.Close(), os.RemoveAll(dir)) }, nil
}

func write(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}
