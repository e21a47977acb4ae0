package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"ringfence/internal/config"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// Bounds of the connections of guests: they come from other users, and must not keep
// this one from his engine. A watch takes a place at the desk, which has 64.
const (
	guestConns    = 16
	guestInFlight = 2
	guestBytes    = 64 << 10
)

// peopleOf returns who can answer here: this user, and the approvers who are others if
// there is a socket for them. more says what would let more people answer.
func peopleOf(conf config.Config) (people []desk.Person, more string) {
	self := ownUID()
	people = []desk.Person{{UID: self, Name: paths.UserName(self)}}
	if conf.GuestSocket == "" {
		return people, `other users of this machine can answer if config.json names them in "approvers" and gives them a socket, "approvals": {"socket": "/…"} (docs/approvals.md)`
	}
	for _, name := range slices.Sorted(maps.Keys(conf.Approvers)) {
		uid, ok := paths.UserID(name)
		if !ok {
			slog.Warn("an approver is no user of this machine", slog.String("name", name))
		}
		if !ok || slices.ContainsFunc(people, func(p desk.Person) bool { return p.UID == uid }) {
			continue
		}
		people = append(people, desk.Person{UID: uid, Name: paths.UserName(uid), Guest: true})
	}
	return people, `config.json says in "approvers" who has which role`
}

// ownUID is the user of this process, [desk.NoUID] where there are no such numbers.
func ownUID() uint32 {
	if uid := os.Geteuid(); uid >= 0 {
		return uint32(uid)
	}
	return desk.NoUID
}

// admitGuests listens for the approvers who are other users; nil if there are none.
func admitGuests(conf config.Config, people []desk.Person) (*ipc.Listener, error) {
	if conf.GuestSocket == "" || len(people) < 2 {
		return nil, nil
	}
	l, err := ipc.ListenForOthers(conf.GuestSocket)
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(conf.GuestSocket)
		return nil, fmt.Errorf("listening for approvers: config.json has approvals.socket in %s, which is not there: make it (mkdir -m 755 %[1]s), or leave the setting out", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("listening for approvers (approvals.socket): %w", err)
	}
	return l, nil
}

// serveGuests serves l until ctx ends.
func (e *Engine) serveGuests(ctx context.Context, l *ipc.Listener) {
	s := api.NewServer(e, api.ServerOptions{
		Program: e.o.Program, MaxConns: guestConns, MaxInFlight: guestInFlight, MaxBytes: guestBytes, MaxTotal: guestConns * guestBytes,
		Guests: func(uid uint32) bool {
			return slices.ContainsFunc(e.people, func(p desk.Person) bool { return p.Guest && p.UID == uid })
		},
		Log: func(err error) { slog.WarnContext(ctx, "an approver's connection", slog.Any("err", err)) },
	})
	if err := s.Serve(ctx, l); err != nil {
		slog.ErrorContext(ctx, "serving approvers", slog.Any("err", err))
	}
}
