package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxEdits    = 1000
	maxCompares = 20_000_000 // lines compared while looking for one call's inexact matches
)

type editArgs struct {
	Path   string `json:"path"`
	Edits  []edit `json:"edits"`
	DryRun bool   `json:"dryRun"`
}

type edit struct {
	OldText *string `json:"oldText"`
	NewText *string `json:"newText"`
}

func (s *server) editFile(ctx context.Context, in editArgs) (*mcp.CallToolResult, error) {
	if len(in.Edits) > maxEdits {
		return nil, fmt.Errorf("at most %d edits in one call, not %d", maxEdits, len(in.Edits))
	}
	s.write.Lock()
	defer s.write.Unlock()
	f, was, err := s.openRegular(in.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := wholeExact(f, was.Size())
	if err != nil {
		return nil, fmt.Errorf("editing %s: %w", in.Path, err)
	}
	old := newText(before)
	after, err := apply(ctx, old.text, in.Edits)
	if err != nil {
		return nil, fmt.Errorf("editing %s: %w", in.Path, err)
	}
	if len(after) > maxText {
		return nil, fmt.Errorf("editing %s: the result has %d bytes, more than %d", in.Path, len(after), maxText)
	}
	if !in.DryRun && after != old.text {
		at, err := s.locate(in.Path, true)
		if err == nil {
			err = at.put(strings.NewReader(old.restore(after)), was)
		}
		if err != nil {
			return nil, fmt.Errorf("editing %s: %w", in.Path, err)
		}
	}
	return said(fence(unified(in.Path, old.text, after))), nil
}

// wholeExact reads a text file and refuses what a round trip would damage.
func wholeExact(f io.Reader, size int64) (string, error) {
	text, err := wholeText(f, size)
	if err != nil {
		return "", err
	}
	if strings.Contains(text, "\uFFFD") {
		return "", errors.New("the file is not valid UTF-8 and would not survive an edit")
	}
	return text, nil
}

// A doc is a text with LF line ends, and what it needs to get its own back.
type doc struct {
	text string
	crlf bool
}

// newText takes the line ends off text. A file with mixed ends gets those that
// most of its lines have.
func newText(text string) doc {
	crlf := strings.Count(text, "\r\n")
	return doc{
		text: strings.ReplaceAll(text, "\r\n", "\n"),
		crlf: crlf*2 > strings.Count(text, "\n"),
	}
}

func (d doc) restore(text string) string {
	if d.crlf {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// apply makes the edits one after the other. The rules, also for inexact matches,
// are those of the well-known server.
func apply(ctx context.Context, text string, edits []edit) (string, error) {
	budget := maxCompares
	for i, e := range edits {
		if e.OldText == nil || e.NewText == nil {
			return "", fmt.Errorf("edit %d: oldText and newText are required", i+1)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		old, repl := newText(*e.OldText).text, newText(*e.NewText).text
		if strings.Contains(text, old) {
			text = strings.Replace(text, old, repl, 1)
			continue
		}
		var ok bool
		if text, ok = replaceLoosely(text, old, repl, &budget); !ok {
			if budget <= 0 {
				return "", fmt.Errorf("edit %d: looking for oldText takes too long; give it exactly as it stands in the file", i+1)
			}
			return "", fmt.Errorf("could not find exact match for edit:\n%s", *e.OldText)
		}
	}
	return text, nil
}

// replaceLoosely replaces the first run of lines of text that equals old but for
// white space around each line. The new lines are indented as the old ones were.
func replaceLoosely(text, old, repl string, budget *int) (string, bool) {
	lines, want := strings.Split(text, "\n"), strings.Split(old, "\n")
	trimmed := make([]string, len(lines))
	for i, l := range lines {
		trimmed[i] = strings.TrimSpace(l)
	}
	for i := range want {
		want[i] = strings.TrimSpace(want[i])
	}
	for at := 0; at+len(want) <= len(lines); at++ {
		match := true
		for j := 0; match && j < len(want); j++ {
			match = trimmed[at+j] == want[j]
			*budget--
		}
		if *budget <= 0 {
			return text, false
		}
		if match {
			fresh := indent(strings.Split(repl, "\n"), strings.Split(old, "\n"), margin(lines[at]))
			out := append(append(append([]string{}, lines[:at]...), fresh...), lines[at+len(want):]...)
			return strings.Join(out, "\n"), true
		}
	}
	return text, false
}

// indent moves the lines of repl to the margin of the first line replaced, and
// keeps how far each stands from the line of old that it takes the place of.
func indent(repl, old []string, base string) []string {
	out := make([]string, len(repl))
	for i, line := range repl {
		was := ""
		if i < len(old) {
			was = margin(old[i])
		}
		switch now := margin(line); {
		case i == 0:
			out[i] = base + line[len(now):]
		case was != "" && now != "":
			out[i] = base + strings.Repeat(" ", max(0, len(now)-len(was))) + line[len(now):]
		default:
			out[i] = line
		}
	}
	return out
}

// margin returns the white space that line begins with.
func margin(line string) string {
	return line[:len(line)-len(strings.TrimLeft(line, " \t\r\v\f"))]
}

// fence puts diff into a code block that nothing in it can close.
func fence(diff string) string {
	ticks := "```"
	for strings.Contains(diff, ticks) {
		ticks += "`"
	}
	return ticks + "diff\n" + diff + ticks + "\n\n"
}
