package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/desk"
	"ringfence/internal/desk/notice"
	"ringfence/internal/egress"
	"ringfence/internal/egress/trust"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// tellPeople has people told, as the configuration says, of what comes to the desk.
func (e *Engine) tellPeople(ctx context.Context) error {
	if len(e.conf.Notify) == 0 && e.conf.Webhook == "" {
		return nil
	}
	o := notice.Options{Now: e.o.Now, Failed: func(err error) {
		slog.WarnContext(ctx, "telling people that something waits", slog.Any("err", err))
	}}
	if argv := e.conf.Notify; len(argv) > 0 {
		o.Run = func(ctx context.Context, text string) error { return runs(ctx, append(slices.Clone(argv), text)) }
	}
	if o.URL = e.conf.Webhook; o.URL != "" {
		key, err := noticeKey(paths.NoticeKey(e.o.Home))
		if err == nil {
			o.Key = key
			o.Carrier, err = e.carrier(o.URL)
		}
		if err != nil {
			return fmt.Errorf("approvals.webhook of the configuration: %w", err)
		}
	}
	events, err := e.desk.Watch(ctx)
	if err != nil {
		return err
	}
	t := notice.New(o)
	e.work.Go(func() { t.Run(ctx) })
	e.work.Go(func() {
		for {
			for ev := range events {
				if ev.Kind == desk.Asked {
					t.Asked(kindOf(ev.Question), ev.Question.Session, ev.Question.Principal)
				}
			}
			if ctx.Err() != nil {
				return
			}
			if events, err = e.desk.Watch(ctx); err != nil { // it fell behind, and there is no room now
				slog.WarnContext(ctx, "nobody is told any more that something waits", slog.Any("err", err))
				return
			}
		}
	})
	return nil
}

// kindOf is what is asked, by the name of its first effect.
func kindOf(q desk.Question) string {
	if len(q.Effects) == 0 {
		return "call"
	}
	return string(q.Effects[0].Kind)
}

// runs starts a program of the person's with little of our environment, and waits for it.
func runs(ctx context.Context, argv []string) error {
	child, err := proc.Detach(proc.Command{Argv: argv, Env: slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(toldEnv, name)
	})})
	if err != nil {
		return err
	}
	select {
	case <-child.Done():
		return child.Err()
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s does not end", argv[0]), child.Kill())
	}
}

// toldEnv is what a program needs to reach the person's desktop.
var toldEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}

// noticeKey is what notices are signed with, 32 bytes, made when there is none.
func noticeKey(path string) ([]byte, error) {
	const form = "ringfence-key/v1 hmac-sha256 "
	text, err := keychain.LoadOrCreateText(path, func() (string, error) {
		var key [32]byte
		rand.Read(key[:])
		return form + hex.EncodeToString(key[:]) + "\n", nil
	})
	if err != nil {
		return nil, err
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), form)
	key, err := hex.DecodeString(digits)
	if !ok || err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s holds no key of notices", path)
	}
	return key, nil
}

// carrier is what posts to one address of the person's configuration, to checked addresses.
func (e *Engine) carrier(url string) (http.RoundTripper, error) {
	n := e.conf.Network
	var roots [][]byte
	for _, name := range n.CA {
		text, err := rootsIn(name)
		if err != nil {
			return nil, err
		}
		roots = append(roots, text)
	}
	to, err := egress.NewNetwork(n.Resolver, n.Private, n.Proxy, roots)
	if err != nil {
		return nil, err
	}
	return egress.NewTransport(egress.Options{Decider: oneAddress(url), Network: to}), nil
}

func rootsIn(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, trust.MaxBundle))
	return text, errors.Join(err, f.Close())
}

// oneAddress lets what this process itself says go to one URL, which the person named in the
// configuration. No request of an agent comes to it.
type oneAddress string

var _ act.Decider = oneAddress("")

// Decide allows a request to that address.
func (a oneAddress) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	t := act.Ticket{Session: r.Session, Verb: r.Verb, Code: act.CodePolicy, Effects: r.Direct, Reason: "only the address of notices is told"}
	if len(r.Direct) == 1 && r.Direct[0].Kind == act.Send && r.Direct[0].Resource.Text == string(a) {
		t.Verdict, t.Code, t.Reason = act.Allow, "", ""
	}
	return t, nil
}

// Finish does nothing: a notice is no effect of an agent's, so it is not on record.
func (oneAddress) Finish(context.Context, act.Ticket, act.Outcome) (act.Reply, error) {
	return act.Reply{}, nil
}
