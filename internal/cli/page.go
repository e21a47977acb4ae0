package cli

import (
	"context"
	"errors"
	"os"

	"ringfence/internal/daemon/api"
	"ringfence/internal/session/attach"
	"ringfence/internal/sys/pty"
	"ringfence/internal/ui/tui"
)

// menu is the page of the hot-key: what the session waits for, to be answered.
func (o *onlooker) menu(ctx context.Context, st attach.State, other bool) attach.Choice {
	action, err := openPage(ctx, o.s, tui.Options{
		Desk: deskOf{connect: connectRunning, session: st.Session}, Title: st.Title, Key: o.key, Other: other, Propose: proposes,
	}, o.quit)
	if err != nil {
		return attach.Back // the terminal has gone: whoever reads it next says so
	}
	return map[tui.Action]attach.Choice{tui.Detach: attach.Detach, tui.Stop: attach.Stop, tui.Send: attach.Send}[action]
}

// openPage shows a page on the terminal of this process. The hot-key is a signal until the
// terminal passes every byte on: quit tells of it.
func openPage(ctx context.Context, s *streams, o tui.Options, quit <-chan os.Signal) (tui.Action, error) {
	raw, err := pty.OpenRaw()
	if err != nil {
		return tui.Back, err
	}
	size := func() (rows, columns int) {
		now, err := raw.Size()
		if err != nil {
			return 0, 0 // not known
		}
		return int(now.Rows), int(now.Columns)
	}
	select {
	case <-quit: // pressed twice, before the page stood
		return tui.Send, raw.Restore()
	default:
	}
	return tui.Open(ctx, tui.Terminal{In: raw, Out: s.out, Close: raw.Restore, Size: size}, o)
}

// A deskOf is the desk of the engine as a page needs it: of one session, or of all for "".
type deskOf struct {
	connect func(context.Context) (*api.Client, error)
	session string
}

// Questions returns those that wait.
func (d deskOf) Questions(ctx context.Context) (own []api.Question, err error) {
	err = with(ctx, d.connect, func(e *api.Client) error {
		all, err := e.Questions(ctx)
		for _, q := range all {
			if q.Session == d.session || d.session == "" {
				own = append(own, q)
			}
		}
		return err
	})
	return own, err
}

// Question returns one whole.
func (d deskOf) Question(ctx context.Context, id string) (q api.Question, err error) {
	err = with(ctx, d.connect, func(e *api.Client) error {
		q, err = e.Question(ctx, id)
		return err
	})
	return q, err
}

// Answer passes an answer on.
func (d deskOf) Answer(ctx context.Context, id string, choice api.Choice) error {
	err := with(ctx, d.connect, func(e *api.Client) error { return e.Answer(ctx, id, choice) })
	if errors.Is(err, api.ErrNotFound) {
		return errors.New("it waits no longer")
	}
	return err
}
