package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/weburl"
)

// maxNotify bounds the arguments of the program that tells people.
const maxNotify = 32

// notices are how people are told that something waits.
func (l *loader) notices(a *approvals) error {
	if a == nil {
		a = &approvals{}
	}
	if n := a.Notify; n != nil {
		if len(n) == 0 || !filepath.IsAbs(n[0]) {
			return l.invalid("/approvals/notify", `it is a program by its absolute path, and arguments, as in ["/usr/bin/notify-send", "ringfence"]`)
		}
		if len(n) > maxNotify {
			return l.invalid("/approvals/notify", "it has at most %d members", maxNotify)
		}
		for i, arg := range n {
			if strings.ContainsRune(arg, 0) {
				return l.invalid("/approvals/notify/"+strconv.Itoa(i), "there is a zero byte in it")
			}
		}
		l.config.Notify = n
	}
	if a.Webhook != nil {
		u, err := weburl.Parse(*a.Webhook)
		if err != nil || u.Scheme != "https" || strings.ContainsAny(*a.Webhook, "@#") {
			return l.invalid("/approvals/webhook", `it is no address as in "https://hooks.example.com/approvals"`)
		}
		a, ok := u.Host.Addr()
		if u.Host.String() == "localhost" {
			a, ok = netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
		}
		if ok && weburl.Special(a) && !slices.ContainsFunc(l.config.Network.Private, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return l.invalid("/approvals/webhook", `%s is not of the public internet: if it may be told, name its range in "private" of "network"`, u.Host)
		}
		l.config.Webhook = u.String()
	}
	l.settings = append(l.settings,
		l.setting("approvals.notify", strings.Join(l.config.Notify, " "), a.Notify != nil),
		l.setting("approvals.webhook", l.config.Webhook, a.Webhook != nil))
	return nil
}
