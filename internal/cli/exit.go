package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
)

// The exit statuses of every verb. A verb that runs a program for its caller
// returns that program's status instead, and adds its own to [exits].
const (
	codeDone       = 0
	codeFailed     = 1
	codeUsage      = 2
	codeDenied     = 3
	codeUnanswered = 4
	codeEvidence   = 5
	codeModel      = 6

	// 128 and the number of SIGINT, as a shell reports it.
	codeInterrupted = 130
)

// A status is an exit status and what it tells the caller.
type status struct {
	code  int
	means string // empty for the meaning in statuses
}

// statuses returns the statuses that all verbs share, in order.
func statuses() []status {
	return []status{
		{codeDone, "done"},
		{codeFailed, "failed, or there are findings"},
		{codeUsage, "the command line is wrong"},
		{codeDenied, "denied, or incomplete"},
		{codeUnanswered, "nobody answered an escalation"},
		{codeEvidence, "evidence cannot be written"},
		{codeModel, "the model or its provider failed"},
		{codeInterrupted, "interrupted"},
	}
}

// An exitError is an error that knows its exit status.
type exitError struct {
	code int
	err  error  // nil: the status says it all, nothing is printed
	hint string // what a person can do next, or empty
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode maps the error of a verb to its exit status.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return codeDone
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, &api.Error{Code: api.CodeUnavailable}):
		return codeEvidence
	case errors.Is(err, context.Canceled):
		return codeInterrupted
	default:
		return codeFailed
	}
}

// report tells the person what went wrong, if anything did, and returns the
// exit status.
func (s *streams) report(err error) int {
	if err == nil && s.out.err != nil {
		err = fmt.Errorf("writing the result: %w", s.out.err)
	}
	code := exitCode(err)
	var e *exitError
	errors.As(err, &e)
	if err == nil || e != nil && e.err == nil {
		return code
	}
	var hint string
	if e != nil {
		hint = e.hint
	}
	if s.json {
		b, jerr := json.Marshal(struct {
			Error string `json:"error"`
			Hint  string `json:"hint,omitempty"`
			Code  int    `json:"code"`
		}{err.Error(), hint, code})
		if jerr == nil {
			fmt.Fprintf(s.err, "%s\n", desk.EscapeJSON(b))
			return code
		}
	}
	// Lines of an error stand apart: a name in it may have a line feed, and say anything.
	fmt.Fprint(s.err, printable("ringfence: "+strings.ReplaceAll(err.Error(), "\n", "\n  ")+"\n"))
	if hint != "" {
		fmt.Fprint(s.err, printable(fmt.Sprintf("ringfence: %s\n", hint)))
	}
	return code
}

// usage makes a usage error of what c refused before its verb had started.
func (s *streams) usage(c *cobra.Command, err error) error {
	var known *exitError
	if err == nil || s.ran || errors.As(err, &known) {
		return err
	}
	return &exitError{code: codeUsage, err: err, hint: usageHint(c)}
}

// value prints the result v: as JSON with --json, else as text does.
func (s *streams) value(v any, text func() string) error {
	if !s.json {
		_, err := fmt.Fprint(s.out, printable(text()))
		return err
	}
	return s.line(v)
}

// line prints v as one line of JSON.
func (s *streams) line(v any) error {
	b, err := line(v)
	if err == nil {
		_, err = s.out.Write(b)
	}
	return err
}
