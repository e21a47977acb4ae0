package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"ringfence/test/rig"
)

// An agent works through one client after the other: when one is killed, the
// next takes its place.
type agent struct {
	scene *scene
	name  string
	done  atomic.Int64 // calls that were answered as they should be

	mu     sync.Mutex
	client *rig.MCP // nil while none is up
}

// live works until ctx ends.
func (a *agent) live(ctx context.Context) {
	for life := 0; ctx.Err() == nil; life++ {
		if err := a.once(ctx, fmt.Sprintf("%s-%d", a.name, life)); err != nil {
			a.scene.fault(fmt.Errorf("agent %s: %w", a.name, err))
			return
		}
	}
}

// once is the life of one client. Calls that are under way when ctx ends come to
// their end.
func (a *agent) once(ctx context.Context, life string) error {
	calm := context.WithoutCancel(ctx)
	m, err := a.scene.home.MCP(calm, a.scene.policy, a.scene.servers)
	if err != nil {
		return a.unlucky(err)
	}
	a.set(m)
	defer a.set(nil)
	var all sync.WaitGroup
	for n := range hands {
		all.Go(func() { a.work(ctx, m, fmt.Sprintf("%s-%d", life, n)) })
	}
	all.Wait()
	return a.unlucky(m.Close())
}

// unlucky is nil if a kill explains err: of the client, or of the engine while
// the client started.
func (a *agent) unlucky(err error) error {
	if err == nil || errors.Is(err, rig.ErrGone) {
		return nil
	}
	return err
}

func (a *agent) set(m *rig.MCP) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = m
}

// kill kills the client that is up, and reports whether one was.
func (a *agent) kill() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		return false
	}
	a.client.Kill()
	a.client = nil
	return true
}

// work makes calls until the client is gone or ctx ends. Each file has a name
// that is used once, so that a file stands for one call.
func (a *agent) work(ctx context.Context, m *rig.MCP, hand string) {
	calm := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		c := call{tool: "write_file", path: filepath.Join(a.scene.home.Work, fmt.Sprintf("f-%s-%d.txt", hand, n))}
		switch n % 7 {
		case 3:
			c.path, c.outside = filepath.Join(a.scene.home.Person, filepath.Base(c.path)), true
		case 5:
			c.tool, c.path = "list_directory", a.scene.home.Own+"/.." // not ours to look into
			c.outside = true
		}
		r, err := m.Call(calm, c.tool, c.arguments())
		if errors.Is(err, rig.ErrGone) {
			return
		}
		if err != nil {
			a.scene.fault(fmt.Errorf("%s %s: %w", c.tool, c.path, err))
			return
		}
		ok, err := a.scene.record.answered(c, r)
		if err != nil {
			a.scene.fault(err)
			return
		}
		if ok {
			a.done.Add(1)
			a.scene.ack()
		}
	}
}

// A call is one that an agent made.
type call struct {
	tool, path string
	outside    bool // of what the policy allows
}

func (c call) arguments() json.RawMessage {
	if c.tool == "write_file" {
		return fmt.Appendf(nil, `{"path":%q,"content":%q}`, c.path, content(c.path))
	}
	return fmt.Appendf(nil, `{"path":%q}`, c.path)
}

// content is what is written into a file: it cannot be that of another.
func content(path string) string { return "this is " + filepath.Base(path) }
