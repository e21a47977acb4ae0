package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A series is what one thing took, each time it was done.
type series []time.Duration

// at returns a quantile of s, which must not be empty.
func (s series) at(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s series) p50() time.Duration { return s.at(0.50) }
func (s series) p99() time.Duration { return s.at(0.99) }

// divided returns s for one of n things that were timed together.
func (s series) divided(n int) series {
	out := make(series, len(s))
	for i, d := range s {
		out[i] = d / time.Duration(n)
	}
	return out
}

// A turn ends after so many times, or so much time.
const (
	mostInTurn = 50
	turn       = 200 * time.Microsecond
)

// inTurn does two things in turn, n turns each, and returns what they took each
// time.
func inTurn(ctx context.Context, n int, ours, beside func() error) (a, b series, err error) {
	took, err := allInTurn(ctx, n, ours, beside)
	if err != nil {
		return nil, nil, err
	}
	return took[0], took[1], nil
}

// allInTurn does things in turn, n turns each, and returns what each took each
// time. Each is as often first, and as often behind each other. What is quick is
// done a few times in a turn, so that it does not only find what the others left
// in the caches of the processor. Before that it does all a few times.
func allInTurn(ctx context.Context, n int, things ...func() error) ([]series, error) {
	for range max(1, n/20) {
		for _, do := range things {
			if err := do(); err != nil {
				return nil, err
			}
		}
	}
	took, order := make([]series, len(things)), make([]int, len(things))
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for k := range order {
			order[k] = (i + k) % len(order)
		}
		if i/len(order)%2 == 1 {
			slices.Reverse(order)
		}
		for _, o := range order {
			began := time.Now()
			for k := 0; k == 0 || k < mostInTurn && time.Since(began) < turn; k++ {
				if err := timed(&took[o], things[o]); err != nil {
					return nil, err
				}
			}
		}
	}
	return took, nil
}

func timed(s *series, f func() error) error {
	start := time.Now()
	err := f()
	*s = append(*s, time.Since(start))
	return err
}

// startsInTurn does two things in turn, n turns each, and returns what each took each
// time. What ends a thing is not timed. The first turn does not count.
func startsInTurn(ctx context.Context, n int, ours, beside func() (end func() error, err error)) (a, b series, err error) {
	things, took := []func() (func() error, error){ours, beside}, make([]series, 2)
	for i := range n + 1 {
		for k := range things {
			o := (i + k) % len(things)
			var end func() error
			err := timed(&took[o], func() (err error) { end, err = things[o](); return err })
			if end != nil {
				err = errors.Join(err, end())
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				return nil, nil, err
			}
		}
	}
	return took[0][1:], took[1][1:], nil
}

// A crowd is what many callers did at once.
type crowd struct {
	each series    // of every call
	rate []float64 // calls a second, of each window
}

// crowdsInTurn has callers do n calls in each window, of which there are so many
// of each of the two things, in turn.
func crowdsInTurn(ctx context.Context, windows, callers, n int, ours, beside func(caller int) error) (a, b crowd, err error) {
	for i := range 2 * windows {
		if err := ctx.Err(); err != nil {
			return crowd{}, crowd{}, err
		}
		c, f := &a, ours
		if (i+i/2)%2 == 1 {
			c, f = &b, beside
		}
		if err := c.window(callers, n, f); err != nil {
			return crowd{}, crowd{}, err
		}
	}
	return a, b, nil
}

func (c *crowd) window(callers, n int, f func(caller int) error) error {
	took, errs := make([]series, callers), make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for k := range callers {
		all.Go(func() {
			for range n {
				if errs[k] = timed(&took[k], func() error { return f(k) }); errs[k] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	c.rate = append(c.rate, float64(callers*n)/time.Since(start).Seconds())
	for k, err := range errs {
		if err != nil {
			return fmt.Errorf("caller %d: %w", k, err)
		}
	}
	c.each = append(c.each, slices.Concat(took...)...)
	return nil
}

// median returns the middle of rates, and the slowest.
func median(rates []float64) (middle, slowest float64) {
	sorted := slices.Sorted(slices.Values(rates))
	return sorted[len(sorted)/2], sorted[0]
}
