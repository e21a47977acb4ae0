package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native"
)

// A sysCaller is a process of testdata/calls, in a box or not.
type sysCaller struct {
	in  io.WriteCloser
	out *bufio.Reader
	end func() error
}

// startFree starts bin as it is.
func startFree(ctx context.Context, bin string) (*sysCaller, error) {
	c := exec.CommandContext(ctx, bin)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = os.Stderr
	return &sysCaller{in, bufio.NewReader(out), c.Wait}, c.Start()
}

// startBoxed starts the program of spec, with pipes as input and output.
func startBoxed(ctx context.Context, spec sandbox.Spec) (*sysCaller, error) {
	spec.Stdin, spec.Stdout, spec.Stderr = nil, nil, os.Stderr
	box, err := native.Tier{}.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &sysCaller{box.Stdin(), bufio.NewReader(box.Stdout()), func() error { return waitFor(box) }}, nil
}

// do has the process do what, so many times.
func (c *sysCaller) do(what string, times int, file string) error {
	if _, err := fmt.Fprintln(c.in, what, times, file); err != nil {
		return err
	}
	_, err := c.out.ReadString('\n')
	return err
}

func (c *sysCaller) close() error {
	err := c.in.Close()
	_, _ = io.Copy(io.Discard, c.out) // how the program ended is said next
	return errors.Join(err, c.end())
}
