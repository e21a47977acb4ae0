package review

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringfence/internal/act/display"
	"ringfence/internal/act/linediff"
	"ringfence/internal/sys/subtree"
)

// What a diff shows at most.
const (
	maxShown = 1 << 20 // bytes of one file
	maxDiff  = 8 << 20 // bytes in all
	around   = 3       // unchanged lines around a change
)

// Diff writes to w what s means as a unified diff, as git writes it, with what is not
// text, too large or no file said in words. Every character without a shape, but line
// feeds and tabs, is an escape: \u{1b}, or \x{ff} where it is not UTF-8. r need not be in
// use.
func (r *Review) Diff(w io.Writer, s Selection) error {
	all, err := r.Changes()
	if err != nil {
		return err
	}
	meant, err := s.meant(all)
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	low, err := r.workspace()
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	defer low.Close() //nolint:errcheck // nothing was written
	up, err := subtree.Open(r.Left())
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	defer up.Close() //nolint:errcheck // nothing was written
	written := 0
	for i, c := range all {
		if !meant[i] {
			continue
		}
		if written > maxDiff {
			_, err := fmt.Fprintf(w, "… %d more changes: the diff is longer than %d bytes; name paths to see them\n", count(meant[i:]), maxDiff)
			return err
		}
		n, err := io.WriteString(w, display.Text(c.diff(low, up)))
		written += n
		if err != nil {
			return err
		}
	}
	return nil
}

func count(meant []bool) (n int) {
	for _, m := range meant {
		if m {
			n++
		}
	}
	return n
}

// diff is the text of one change.
func (c Change) diff(low, up *subtree.Dir) string {
	var b strings.Builder
	name := Quoted(c.Path)
	fmt.Fprintf(&b, "%s %s", c.Kind, name)
	if c.Dir {
		b.WriteString("/")
	}
	for _, f := range c.Flags {
		fmt.Fprintf(&b, " [%s]", f)
	}
	b.WriteString("\n")
	for _, note := range []string{c.Conflict, c.Refused} {
		if note != "" {
			fmt.Fprintf(&b, "! %s\n", note)
		}
	}
	if c.there && c.Kind != Deleted && c.low.Kind == c.up.Kind && (c.perm^c.low.Perm)&0o777 != 0 && c.up.Kind != subtree.Link {
		fmt.Fprintf(&b, "old mode %04o\nnew mode %04o\n", c.low.Perm&0o777, c.mode())
	}
	if c.Kind == Type {
		fmt.Fprintf(&b, "was a %s, is a %s\n", c.low.Kind, c.up.Kind)
	}
	if c.Kind == Mode || c.Dir || c.Refused != "" {
		return b.String()
	}
	was, wasText := side{none: true}, "/dev/null"
	if c.there && c.low.Kind != subtree.Directory {
		was, wasText = sideOf(low, c, c.low), Quoted("a/"+c.Path)
	}
	is, isText := side{none: true}, "/dev/null"
	if c.Kind != Deleted {
		is, isText = sideOf(up, c, c.up), Quoted("b/"+c.Path)
	}
	if was.note != "" || is.note != "" {
		fmt.Fprintf(&b, "%s → %s\n", was.words(), is.words())
		return b.String()
	}
	if hunks := linediff.Hunks(was.text, is.text, around); hunks != "" {
		fmt.Fprintf(&b, "--- %s\n+++ %s\n%s", wasText, isText, hunks)
	}
	return b.String()
}

// A side is one of the two that are compared.
type side struct {
	text string
	note string // why there is no text
	size int64
	none bool // there is nothing
}

func (s side) words() string {
	if s.note != "" {
		return s.note
	}
	if s.none {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes of text", s.size)
}

func sideOf(root *subtree.Dir, c Change, info subtree.Info) side {
	dir, name, err := chain(root, c.Path)
	if err != nil {
		return side{note: reason(err)}
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	switch info.Kind {
	case subtree.Link:
		target, err := dir.Readlink(name)
		if err != nil {
			return side{note: reason(err)}
		}
		return side{text: "link to " + Quoted(target), size: int64(len(target))}
	case subtree.File:
	default:
		return side{note: info.Kind.String()}
	}
	if info.Size > maxShown {
		return side{note: fmt.Sprintf("%d bytes, too many to show", info.Size)}
	}
	f, _, err := dir.OpenFile(name)
	if err != nil {
		return side{note: reason(err)}
	}
	defer f.Close()
	return textOf(f)
}

func textOf(f *os.File) side {
	b, err := io.ReadAll(io.LimitReader(f, maxShown+1))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return side{note: reason(err)}
	case len(b) > maxShown:
		return side{note: fmt.Sprintf("more than %d bytes", maxShown)}
	case slices.Contains(b, 0) || !utf8.Valid(b):
		return side{note: fmt.Sprintf("%d bytes, not text", len(b))}
	}
	return side{text: string(b), size: int64(len(b))}
}

// Quoted is a path that cannot be taken for two, nor for more than a path: as a Go
// string where it has characters without a shape, or blanks that may look like the end
// of it.
func Quoted(path string) string {
	q := strconv.Quote(path)
	if q != `"`+path+`"` || path == "" || strings.Contains(path, "  ") || strings.TrimSpace(path) != path {
		return q
	}
	return path
}
