//go:build linux

package net_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// until waits for something to be so.
func until(t *testing.T, what string, most time.Duration, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(most)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", most, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stateOf is what is said of a session.
func (p *place) stateOf(t *testing.T, id string) string {
	t.Helper()
	out, err := p.Run(t.Context(), "sessions", "show", "--json", id)
	var r struct{ State string }
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

// beats reports whether a program in a box still writes to a file.
func beats(t *testing.T, file string) bool {
	t.Helper()
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	select { // a heart beats every tenth of a second
	case <-t.Context().Done():
	case <-time.After(400 * time.Millisecond):
	}
	is, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(was) != string(is)
}

const heart = `i=0; while :; do i=$((i+1)); echo $i >beat; sleep 0.1; done`

// TestSessions: what runs at a terminal is left and come back to, is ended, and goes on.
func TestSessions(t *testing.T) {
	p := newPlace(t)
	s := onScreen(t, p.Command(t.Context(), "run", "--policy", p.policy, "--", "/bin/sh", "-c", heart+" & cat"))
	s.press("first words", "Enter")
	s.shows("first words\nfirst words")
	s.press(`C-\`)
	s.shows("leave; it runs on")
	s.settles()
	s.press("d", "Enter")
	s.shows("(ended)")
	id := p.latest(t)
	if got := p.stateOf(t, id); got != "running" || !beats(t, filepath.Join(p.Work, "beat")) {
		t.Fatalf("it is %s", got)
	}
	s = onScreen(t, p.Command(t.Context(), "sessions", "attach", id[:6]))
	s.shows("first words")
	s.press("second words", "Enter")
	s.shows("second words\nsecond words")
	if _, err := p.Run(t.Context(), "sessions", "stop", id); err != nil {
		t.Fatal(err)
	}
	s.shows("(ended)")
	until(t, "it has ended", 10*time.Second, func() bool { return p.stateOf(t, id) != "running" })
	if out, err := p.Run(t.Context(), "sessions", "logs", id); err != nil || !strings.Contains(string(out), "second words") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := p.Run(t.Context(), "sessions", "resume", id)
	if err != nil {
		t.Fatal(err)
	}
	next := strings.TrimSpace(string(out))
	if got := p.stateOf(t, next); got != "running" || !beats(t, filepath.Join(p.Work, "beat")) {
		t.Errorf("%s is %s", next, got)
	}
	if _, err := p.Run(t.Context(), "sessions", "rm", next); err == nil {
		t.Error("one that runs was forgotten")
	}
	if _, err := p.Run(t.Context(), "sessions", "stop", next); err != nil {
		t.Error(err)
	}
	until(t, "it has ended", 10*time.Second, func() bool { return p.stateOf(t, next) != "running" })
	if _, err := p.Run(t.Context(), "sessions", "rm", id, next); err != nil {
		t.Error(err)
	}
	if out, err := p.Run(t.Context(), "sessions", "list"); err != nil || string(out) != "Nothing was run.\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSessionsKey: the hot-key pressed twice is for the program, whatever the program has made of
// the terminal; who leaves gets his terminal back as it was.
func TestSessionsKey(t *testing.T) {
	p := newPlace(t)
	shell := exec.Command("/bin/sh")
	cmd := p.Command(t.Context())
	shell.Env, shell.Dir = cmd.Env, cmd.Dir
	s := onScreen(t, shell)
	s.press(p.Bin+" run --policy "+p.policy+` -- /bin/sh -c 'stty -isig; printf "\033[?25l\033[?1000hits page\n"; cat -v'`, "Enter")
	s.shows("its page\n")
	gone := func() bool { return !strings.Contains(s.text(), "leave; it runs on") }
	s.press(`C-\`)
	s.shows("leave; it runs on")
	s.press(`C-\`)
	until(t, "the page of ours has gone", 10*time.Second, gone)
	s.press("Enter")
	s.shows("^\\\n")
	if got := s.flags(); got != "1 0" {
		t.Errorf("mouse and cursor are %q after the page", got)
	}
	s.press(`C-\`)
	s.shows("leave; it runs on")
	s.settles()
	s.press("d", "Enter")
	s.shows("it runs on:")
	if got := s.flags(); got != "0 1" {
		t.Errorf("mouse and cursor are %q afterwards", got)
	}
	if _, err := p.Run(t.Context(), "sessions", "stop", p.latest(t)); err != nil {
		t.Error(err)
	}
}

// flags are whether the mouse is told to the program, and the cursor is shown.
func (s *screen) flags() string {
	out, err := exec.Command("tmux", "-S", s.socket, "display-message", "-p", "#{mouse_standard_flag} #{cursor_flag}").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// latest is the session that was begun last.
func (p *place) latest(t *testing.T) string {
	t.Helper()
	out, err := p.Run(t.Context(), "sessions", "list")
	id, _, ok := strings.Cut(string(out), " ")
	if err != nil || !ok {
		t.Fatalf("%v\n%s", err, out)
	}
	return id
}

// TestSessionsLost: when the engine is killed, or the process that holds a session, its box
// does not live on, and it can be resumed.
func TestSessionsLost(t *testing.T) {
	for what, pid := range map[string]func(t *testing.T, p *place, id string) int{
		"the engine": func(t *testing.T, p *place, _ string) int {
			var status struct {
				PID int `json:"pid"`
			}
			out, err := p.Run(t.Context(), "engine", "status", "--json")
			if err == nil {
				err = json.Unmarshal(out, &status)
			}
			if err != nil {
				t.Fatal(err)
			}
			return status.PID
		},
		"the holder": func(t *testing.T, p *place, id string) int {
			var run struct {
				Holder struct {
					PID int `json:"pid"`
				} `json:"holder"`
			}
			text, err := os.ReadFile(filepath.Join(p.Own, "runs", id, "run.json"))
			if err == nil {
				err = json.Unmarshal(text, &run)
			}
			if err != nil {
				t.Fatal(err)
			}
			return run.Holder.PID
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPlace(t)
			out, err := p.Run(t.Context(), "run", "--detach", "--policy", p.policy, "--", "/bin/sh", "-c", heart)
			if err != nil {
				t.Fatal(err)
			}
			id, beat := strings.TrimSpace(string(out)), filepath.Join(p.Work, "beat")
			until(t, "it runs", 10*time.Second, func() bool { return beats(t, beat) })
			if err := syscall.Kill(pid(t, p, id), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, "its box has ended", 5*time.Second, func() bool { return !beats(t, beat) })
			until(t, "it is known", 5*time.Second, func() bool { return p.stateOf(t, id) == "interrupted" })
			out, err = p.Run(t.Context(), "sessions", "resume", id)
			if err != nil {
				t.Fatal(err)
			}
			next := strings.TrimSpace(string(out))
			until(t, "it goes on", 10*time.Second, func() bool { return beats(t, beat) })
			if _, err := p.Run(t.Context(), "sessions", "stop", next); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSessionsCrowd: many sessions at once have each their own: workspace, home, key, socket.
func TestSessionsCrowd(t *testing.T) {
	n := 8
	if text := os.Getenv("RINGFENCE_SESSIONS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlace(t)
	var ids []string
	for i := range n {
		work := filepath.Join(p.Work, fmt.Sprint("w", i))
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := p.Command(t.Context(), "run", "--detach", "--policy", p.policy, "-w", work, "--", "/bin/sh", "-c", "echo "+fmt.Sprint(i)+" >mine; ls .. >others 2>&1; "+heart)
		out, err := cmd.Output()
		if err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				err = fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			t.Fatal(err)
		}
		ids = append(ids, strings.TrimSpace(string(out)))
	}
	for i := range n {
		work := filepath.Join(p.Work, fmt.Sprint("w", i))
		until(t, "each works", 20*time.Second, func() bool { return beats(t, filepath.Join(work, "beat")) })
		mine, err := os.ReadFile(filepath.Join(work, "mine"))
		others, err2 := os.ReadFile(filepath.Join(work, "others"))
		if err != nil || err2 != nil || strings.TrimSpace(string(mine)) != fmt.Sprint(i) || strings.TrimSpace(string(others)) != fmt.Sprint("w", i) {
			t.Errorf("%d wrote %q and saw %q: %v %v", i, mine, others, err, err2)
		}
	}
	for _, id := range ids {
		if _, err := p.Run(t.Context(), "sessions", "stop", id); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Run(t.Context(), "ledger", "verify"); err != nil {
		t.Error(err)
	}
}
