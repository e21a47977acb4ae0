// Package docs runs what the documents tell a reader to type.
//
// Each block fenced as "console" in README.md and docs/*.md is run, in the order
// of the document, in one empty directory and one home per document, with
// bin/ringfence on the PATH. In a block, "$ " starts a command, "> " continues it,
// and the lines after it are what it prints on both streams; "..." is any text
// within a line, and, alone on a line, any number of lines. A command that ends
// with "# exit N" must exit with N, any other with 0.
//
// A block is left out only by the line before it: <!-- not run: reason -->. Blocks
// of shell by another name are refused, so that none escapes.
package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const deadline = time.Minute // of one command

// A command is one "$ " line and what must come of it.
type command struct {
	at     string // file:line
	text   string
	want   []string
	status int
}

func TestDocuments(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(bin, "ringfence"), "ringfence/cmd/ringfence")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, wrong := range runDocument(t.Context(), filepath.Base(file), string(text), t.TempDir(), bin) {
				t.Error(wrong)
			}
		})
	}
}

// TestTheHarness runs testdata/*.md. What is wrong with a document is in its own
// "<!-- want: … -->" lines, in order.
func TestTheHarness(t *testing.T) {
	files, err := filepath.Glob("testdata/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, m := range regexp.MustCompile(`<!-- want: (.*) -->`).FindAllStringSubmatch(string(text), -1) {
				want = append(want, m[1])
			}
			got := runDocument(t.Context(), filepath.Base(file), string(text), t.TempDir(), t.TempDir())
			if !slices.EqualFunc(got, want, strings.Contains) {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}

// runDocument runs the commands of a document in dir and says what is wrong.
func runDocument(ctx context.Context, name, text, dir, bin string) []string {
	commands, wrong := parse(name, text)
	home, err := os.MkdirTemp("", "rf")
	if err != nil {
		return append(wrong, err.Error())
	}
	env := append(os.Environ(),
		"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"HOME="+dir,
		"RINGFENCE_HOME="+filepath.Join(home, "home"),
	)
	for _, c := range commands {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		cmd := exec.CommandContext(ctx, "sh", "-c", c.text)
		cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		status := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: running %q: %v", c.at, c.text, err))
			continue
		}
		if status != c.status {
			wrong = append(wrong, fmt.Sprintf("%s: exit status %d, want %d; it printed:\n%s", c.at, status, c.status, out))
		} else if !pattern(c.want).Match(out) {
			wrong = append(wrong, fmt.Sprintf("%s: it printed:\n%swant:\n%s", c.at, out, strings.Join(c.want, "\n")))
		}
	}
	if _, err := os.Stat(filepath.Join(home, "home")); err == nil {
		stop := exec.CommandContext(ctx, filepath.Join(bin, "ringfence"), "engine", "stop", "--force")
		stop.Env = env
		// It fails if no engine runs, which is as well.
		_ = stop.Run()
	}
	if err := os.RemoveAll(home); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

var (
	exitComment = regexp.MustCompile(`# exit ([0-9]+)$`)
	excuse      = regexp.MustCompile(`^<!-- not run: [^-\s].* -->$`)
)

// parse returns the commands of a document, and what is wrong with its blocks.
func parse(name, text string) (commands []command, wrong []string) {
	fence, run, before := "", false, ""
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = strings.TrimPrefix(line, "```") + " "
			excused := excuse.MatchString(before)
			run = fence == "console " && !excused
			if slices.Contains([]string{"sh ", "bash ", "shell ", "zsh "}, fence) && !excused {
				wrong = append(wrong, at+": fence it as console, or say why it is not run")
			}
		case fence != "" && strings.HasPrefix(line, "```"):
			fence, run = "", false
		case run && strings.HasPrefix(line, "$ "):
			commands = append(commands, command{at: at, text: line[2:]})
		case run && strings.HasPrefix(line, "> ") && len(commands) > 0 && commands[len(commands)-1].want == nil:
			commands[len(commands)-1].text += "\n" + line[2:]
		case run && len(commands) == 0:
			wrong = append(wrong, at+": a block starts with a command")
		case run:
			commands[len(commands)-1].want = append(commands[len(commands)-1].want, line)
		}
		if line != "" {
			before = line
		}
	}
	if fence != "" {
		wrong = append(wrong, name+": a block has no end")
	}
	for i, c := range commands {
		if m := exitComment.FindStringSubmatch(c.text); m != nil {
			commands[i].status, _ = strconv.Atoi(m[1])
		}
	}
	return commands, wrong
}

// pattern matches an output that has the wanted lines.
func pattern(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for _, line := range want {
		if line == "..." {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`) + `\n`)
	}
	b.WriteString(`$`)
	return regexp.MustCompile(b.String())
}
