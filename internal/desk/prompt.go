package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Terminal is the controlling terminal of a verb that owns it, opened by that
// verb for this purpose; an *os.File of /dev/tty is one. Never pass a stream
// that an agent can write to.
//
// If the terminal also has a method Discard() error that drops what was typed
// and not yet read (tcflush(3) with TCIFLUSH), a plain "yes" approves. Without
// it the person must type "yes" and a code that is shown in the prompt, which
// nobody can have typed before.
type Terminal interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// maxReply bounds the line that is read as an answer, in bytes.
const maxReply = 256

// Prompt shows q on out and reads one line from in. Only "yes" (with the code,
// see [Terminal]) is a yes; any other line, the end of input, an error, the
// deadline of q and the end of ctx are a no. The error says why when it was not
// a line that decided. out must be the same terminal as in.
func Prompt(ctx context.Context, in Terminal, out io.Writer, q Question) (Choice, error) {
	no := Choice{Mark: q.Mark}
	ctx, cancel := context.WithDeadlineCause(ctx, q.Deadline, ErrNoAnswer)
	defer cancel()
	if err := in.SetReadDeadline(time.Time{}); err != nil {
		return no, fmt.Errorf("asking on the terminal: this terminal cannot be waited on: %w", err)
	}
	// Interrupting the read is what ends it when ctx does; after Prompt returns
	// nothing of ours reads the terminal.
	stop := context.AfterFunc(ctx, func() { _ = in.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	want := challenge(in)
	left := time.Until(q.Deadline).Round(time.Second)
	if _, err := fmt.Fprintf(out, "\n%s\nType %q to allow%s. Anything else is a no, and so is silence for %s: ", Render(q), want, allOf(q), left); err != nil {
		return no, fmt.Errorf("asking on the terminal: %w", err)
	}
	if err := discard(in); err != nil {
		return no, fmt.Errorf("asking on the terminal: %w", err)
	}
	reply, err := readLine(in)
	if ctx.Err() != nil {
		return no, fmt.Errorf("asking on the terminal: %w", context.Cause(ctx))
	}
	if err != nil {
		return no, fmt.Errorf("asking on the terminal: %w", err)
	}
	return Choice{Yes: strings.TrimSpace(reply) == want, Mark: q.Mark}, nil
}

// allOf says what a yes is for, where that is more than one call.
func allOf(q Question) string {
	if q.Calls <= 1 {
		return ""
	}
	return fmt.Sprintf(" all %d calls", q.Calls)
}

type discarder interface{ Discard() error }

// discard drops what was typed before the prompt stood on the screen.
func discard(in Terminal) error {
	if d, ok := in.(discarder); ok {
		return d.Discard()
	}
	return nil
}

// challenge returns what must be typed: "yes", and a code of three characters
// where earlier input cannot be dropped.
func challenge(in Terminal) string {
	if _, ok := in.(discarder); ok {
		return "yes"
	}
	return "yes " + strings.ToLower(rand.Text()[:3])
}

// readLine reads up to a line feed, byte by byte so that nothing after the line
// is consumed. A line longer than maxReply is an error.
func readLine(in io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) <= maxReply {
		n, err := in.Read(b[:])
		if n == 1 && (b[0] == '\n' || b[0] == '\r') {
			return string(line), nil
		}
		line = append(line, b[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "", ErrNoAnswer
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("the answer is longer than %d bytes", maxReply)
}
