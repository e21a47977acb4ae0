package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"ringfence/internal/agent/external"
	"ringfence/internal/launch"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
)

// maxJSONOutput bounds each stream of a command in an [outcome], unless --output says
// more or less.
const maxJSONOutput = 1 << 20

// maxTranscript bounds that of an agent, in bytes.
const maxTranscript = 64 << 20

// An outcome is what --json prints of a command that ran in a box: one value, in which
// what it wrote is. Bytes that are no UTF-8 are replaced.
type outcome struct {
	Status   int              `json:"status"` // as on a command line
	Exit     string           `json:"exit"`   // "status 1", "signal 9", "deadline"
	Millis   int64            `json:"millis"`
	Stdout   string           `json:"stdout"`
	Steps    []external.Step  `json:"steps,omitempty"` // of an agent, as it says; they are not in stdout
	Stderr   string           `json:"stderr"`
	Dropped  int64            `json:"dropped,omitempty"` // bytes of both beyond the limit
	Denials  []sandbox.Denial `json:"denials,omitempty"`
	Note     string           `json:"note,omitempty"`      // how the box ended it
	NotGiven string           `json:"not_given,omitempty"` // what was asked for and is not in the box
	Box      sandbox.Report   `json:"box"`
}

// launchJSON is launch, with one value in place of streams.
func (s *streams) launchJSON(ctx context.Context, o launch.Options, spec sandbox.Spec) (int, error) {
	var end outcome
	o.Narrowed = func(note string) { end.NotGiven = note }
	confirmed := o.Confirmed
	o.Confirmed = func(r sandbox.Report) error {
		end.Box = r
		return confirmed(r)
	}
	r, err := launch.Start(ctx, o, spec)
	if err != nil {
		return 0, err
	}
	stop := forward(r)
	defer stop()
	limit := spec.Bounds().Output
	if limit == sandbox.Unlimited {
		limit = maxJSONOutput
		if s.steps != nil {
			limit = maxTranscript
		}
	}
	var out, said bytes.Buffer
	dropped, err := s.pipe(r, &out, &said, limit)
	if err != nil {
		err = errors.Join(fmt.Errorf("reading what it writes: %w", err), r.Kill())
	}
	res, _, ferr := r.Finish(ctx, nil, nil, dropped)
	if err := errors.Join(err, ferr); err != nil {
		return 0, err
	}
	end.Status, end.Exit, end.Millis, end.Dropped = res.Status, res.Exit, res.Millis, dropped
	end.Stdout, end.Stderr = out.String(), said.String()
	if s.steps != nil {
		end.Stdout, end.Steps = transcribed(out.String(), s.steps)
	}
	var begin beginning
	if _, err := begin.Write(said.Bytes()); err != nil {
		return 0, err
	}
	end.Denials = s.told(r.Spec, append(res.Denials, inferred(r.Spec, res, string(begin))...), o.Fixed)
	if res.Ended.Cause != sandbox.CauseKill {
		end.Note = mediator.Ended(ctx, r.Spec, res.Ended)
	}
	return res.Status, s.line(end)
}

// transcribed is what an agent did, and what of its output does not say that.
func transcribed(out string, read func([]byte) []external.Step) (rest string, steps []external.Step) {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			b.WriteString(line)
			continue
		}
		steps = append(steps, read([]byte(strings.TrimSpace(line)))...)
	}
	return b.String(), steps
}
