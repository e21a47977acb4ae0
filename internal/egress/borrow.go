package egress

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
)

// A borrowed is a sentinel that stands where its secret may go out.
type borrowed struct {
	sentinel loan.Sentinel
	at       loan.Position
	user     string // of Basic
}

// errNotLent says that a request was allowed without what it asked for: it does not go
// out with a text in place of a key.
var errNotLent = errors.New("the secret that the request names was not lent")

// borrow finds the sentinels in the head of a request to u: those that stand in their
// place, and the name of one that does not, "" if each does.
func (w *way) borrow(r *http.Request, u weburl.URL) (found []borrowed, wrong string) {
	for _, s := range w.o.Sentinels {
		total := occurrences(r, u, s.Text)
		if total == 0 {
			continue
		}
		b, ok := place(r, u, s)
		if !ok || total > 1 {
			return nil, s.Name
		}
		found = append(found, b)
	}
	return found, ""
}

// place returns in which of its places s stands.
func place(r *http.Request, u weburl.URL, s loan.Sentinel) (borrowed, bool) {
	for _, b := range s.Bindings {
		if !b.Covers(r.Method, u) {
			continue
		}
		if b.Query != "" {
			if _, ok := loan.SwapQuery(u.Query, b.Query, s.Text, s.Text); ok {
				return borrowed{s, b.Position, ""}, true
			}
			continue
		}
		for _, v := range r.Header[textproto.CanonicalMIMEHeaderKey(b.Header)] {
			if user, credential, ok := b.Read(v); ok && credential == s.Text {
				return borrowed{s, b.Position, user}, true
			}
		}
	}
	return borrowed{}, false
}

// occurrences counts in how many places of the head of r text is, plain, with escapes
// undone, or as base64 of a Basic credential.
func occurrences(r *http.Request, u weburl.URL, text string) int {
	n := 0
	for _, s := range []string{u.Path, u.Query} {
		if strings.Contains(s, text) || strings.Contains(weburl.Unescape(s), text) {
			n++
		}
	}
	for name, values := range r.Header {
		if strings.Contains(name, text) {
			n++
		}
		for _, v := range values {
			if strings.Contains(v, text) || strings.Contains(weburl.Unescape(v), text) || slices.ContainsFunc(strings.Fields(v), func(f string) bool { return decodesTo(f, text) }) {
				n++
			}
		}
	}
	return n
}

// decodesTo reports whether f is base64 of something that holds text.
func decodesTo(f, text string) bool {
	if len(f) < len(text) {
		return false
	}
	f = strings.TrimRight(f, "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if raw, err := e.DecodeString(f); err == nil && strings.Contains(string(raw), text) {
			return true
		}
	}
	return false
}

// lend puts what the ticket lends in the place of sentinels. Each of them must be lent,
// and a header in which one stood has that value and no other.
func (w *way) lend(h http.Header, u *weburl.URL, loans []act.Loan, found []borrowed) error {
	for _, b := range found {
		i := slices.IndexFunc(loans, func(l act.Loan) bool { return l.Name == b.sentinel.Name && l.Sentinel == b.sentinel.Text })
		if i < 0 || loans[i].Value == "" || strings.ContainsAny(loans[i].Value, "\r\n\x00") {
			return errNotLent
		}
		if b.at.Query != "" {
			swapped, ok := loan.SwapQuery(u.Query, b.at.Query, b.sentinel.Text, loans[i].Value)
			if !ok {
				return errNotLent
			}
			u.Query = swapped
			continue
		}
		h[textproto.CanonicalMIMEHeaderKey(b.at.Header)] = []string{b.at.Write(b.user, loans[i].Value)}
	}
	return nil
}

// misplaced is the denial of a request with a sentinel where its secret does not belong.
func misplaced(t act.Ticket, name string) *DeniedError {
	d := &DeniedError{Object: name, Effect: act.UseSecret, Code: act.CodeTripwire}
	if len(t.Effects) > 0 {
		d.Object = t.Effects[0].Resource.Text
	}
	d.Reason = "denied: what stands for the secret " + name + " is not in the place, or not on the way to the host, that the secret is bound to"
	d.Ask = "send it only where the secret is bound to (ringfence secret list)"
	return d
}
