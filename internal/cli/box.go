package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"ringfence/internal/act/display"
	"ringfence/internal/config"
	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/native"
	"ringfence/internal/sandbox/unboxed"
	"ringfence/internal/sys/paths"
)

// The exit statuses of verbs that run a program in a box, besides its own.
const (
	codeDeadline = 124 // Limits.Wall was over
	codeNotBuilt = 125
	codeNotRun   = 126 // denied
	codeNotFound = 127
)

// settings reads the configuration of the home.
func settings() (config.Config, config.Provenance, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return config.Config{}, nil, err
	}
	conf, from, err := config.Load(home)
	if err != nil {
		return config.Config{}, nil, &exitError{code: codeUsage, err: err}
	}
	return conf, from, nil
}

// containers is the tier container as configured.
func containers(c config.Container) (sandbox.Tier, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	var socket string
	if c.Host != "" {
		if socket, err = container.ParseHost(c.Host); err != nil {
			return nil, &exitError{code: codeUsage, err: err}
		}
	}
	return container.New(container.Options{
		Runtime: container.Runtime(c.Runtime), Socket: socket, Context: c.Context, Contexts: c.Contexts,
		Image: c.Image, Memory: c.Memory, CPUs: int64(c.CPUs * 1e9), Timeout: c.Timeout, Home: home, Own: paths.OwnState(home),
	}), nil
}

// sweep removes what boxes of processes that died have left. That it cannot be done
// is no reason not to go on: a tier that cannot be used says so when it is used.
func sweep(ctx context.Context, s *streams, t sandbox.Tier) {
	c, ok := t.(*container.Tier)
	if !ok {
		return
	}
	removed, err := c.Sweep(ctx)
	if removed > 0 {
		s.say("removed %s that dead processes had left", display.Count(removed, "container", "containers"))
	}
	if err != nil {
		s.say("looking for containers that dead processes left: %v", err)
	}
}

// tierOf returns the one tier that is required: that of the flag, else of the
// configuration. There is no second choice.
func tierOf(s *streams, conf config.Box, flag string) (sandbox.Tier, error) {
	name := conf.Tier
	if flag != "" {
		name = flag
	} else if conf.Passed != "" {
		s.say("%s", passedOver(conf))
	}
	t, err := tierNamed(conf, name)
	if err != nil {
		return nil, err
	}
	if !conf.Permissive || name == config.TierNone {
		return t, nil
	}
	return sandbox.Permissive(t, unboxed.Tier{}, func(err error) {
		fmt.Fprint(s.err, printable(fmt.Sprintf("ringfence: %v\n", err)))
	}), nil
}

// passedOver says which variable selects another tier than the file, and does not count.
func passedOver(conf config.Box) string {
	return fmt.Sprintf("%s does not select the tier: box.tier in config.json does, which is %s; unset one of them, or say --tier", conf.Passed, conf.Tier)
}

func tierNamed(conf config.Box, name string) (sandbox.Tier, error) {
	switch name {
	case config.TierNative:
		home, err := paths.EnsureHome()
		if err != nil {
			return nil, err
		}
		return native.Tier{Own: paths.OwnState(home)}, nil
	case config.TierContainer:
		return containers(conf.Container)
	case config.TierNone:
		return unboxed.Tier{}, nil
	case config.TierMicroVM:
		return nil, &exitError{code: codeNotBuilt, err: errors.New("the tier microvm is not part of this version"), hint: "choose another with --tier or box.tier in config.json; nothing was run"}
	}
	return nil, &exitError{code: codeUsage, err: fmt.Errorf("no tier %q; there are native, container, none", name)}
}

// An imageOfEngine is what the engine keeps for the stages of boxes, as soon as there is
// somebody who asks it: a box is begun before that.
type imageOfEngine struct {
	once sync.Once
	file chan *os.File
}

// in returns t with the image, if it is of a kind that needs one.
func (i *imageOfEngine) in(t sandbox.Tier) sandbox.Tier {
	n, ok := t.(native.Tier)
	if !ok {
		return t
	}
	i.file = make(chan *os.File, 1)
	n.Image = sync.OnceValue(func() *os.File { return <-i.file })
	return n
}

// is says which process the engine is, the first time it is called; 0 is none.
func (i *imageOfEngine) is(pid int) {
	if i.file == nil {
		return
	}
	i.once.Do(func() {
		if pid == 0 {
			close(i.file)
			return
		}
		go func() { // it is looked at while the engine decides
			i.file <- native.ImageOf(pid)
			close(i.file)
		}()
	})
}
