package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"ringfence/internal/sys/keychain"
)

// keyBody is the body of an entry that puts another key in force. Both keys
// sign the same statement: the old one hands over, the new one shows that its
// holder agrees.
type keyBody struct {
	From          string `json:"from"` // as keychain.PublicText
	FromSignature []byte `json:"fromSignature"`
	Reason        string `json:"reason"`
	To            string `json:"to"`
	ToSignature   []byte `json:"toSignature"`
}

const maxReason = 200 // bytes

// statement is what is signed to change keys.
func (k *keyBody) statement(origin string) []byte {
	return fmt.Appendf(nil, "ringfence-ledger/v1 key change\n%s\n%s\n%s\n%s\n", origin, k.From, k.To, k.Reason)
}

// Rotate puts another key in force: the change is an entry that both keys sign,
// and every later checkpoint is signed by the new key alone. The next Open must
// be given the new key, so store it before. reason is for the record: printable
// ASCII, at most 200 bytes.
//
// If the old key is known to others, also tell everyone who trusts it to trust
// the new one instead: what a thief signs with the old key is then refused, and
// what was signed before the change stays provable through the new one.
func (l *Ledger) Rotate(ctx context.Context, from, to ed25519.PrivateKey, reason string) error {
	if !printable(reason) {
		return fmt.Errorf("rotating key: the reason is not printable ASCII of at most %d bytes", maxReason)
	}
	l.rotating.Lock()
	defer l.rotating.Unlock()
	l.mu.Lock()
	current := l.public
	l.mu.Unlock()
	if !current.Equal(from.Public()) {
		return fmt.Errorf("rotating key: %w: by %s", ErrKey, keychain.KeyID(current))
	}
	next, err := signer(to, l.origin)
	if err != nil {
		return fmt.Errorf("rotating key: %w", err)
	}
	if _, err := l.Checkpoint(ctx); err != nil { // the last of the old key
		return fmt.Errorf("rotating key: %w", err)
	}
	k := keyBody{From: publicText(from), To: publicText(to), Reason: reason}
	k.FromSignature, k.ToSignature = ed25519.Sign(from, k.statement(l.origin)), ed25519.Sign(to, k.statement(l.origin))
	body, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("rotating key: %w", err)
	}
	r := &request{entries: []Entry{{SystemSession, TypeKey, body}}, durable: true, own: true, key: k.To, signer: next}
	if _, err := l.append(ctx, r); err != nil {
		return fmt.Errorf("rotating key: %w", err)
	}
	l.mu.Lock()
	l.public = to.Public().(ed25519.PublicKey)
	l.mu.Unlock()
	if _, err = l.Checkpoint(ctx); err != nil { // the first of the new key
		return fmt.Errorf("rotating key: %w", err)
	}
	return nil
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return len(s) <= maxReason
}

// parseKeyChange decodes and verifies the body of a change from the key in
// force.
func parseKeyChange(body []byte, origin string, current ed25519.PublicKey) (k keyBody, err error) {
	if err := decodeBody(body, &k); err != nil {
		return k, err
	}
	from, err1 := keychain.ParsePublic(k.From)
	to, err2 := keychain.ParsePublic(k.To)
	if err := errors.Join(err1, err2); err != nil {
		return k, err
	}
	statement := k.statement(origin)
	switch {
	case !from.Equal(current):
		err = errors.New("a change of keys from one that is not in force")
	case !printable(k.Reason):
		err = errors.New("a change of keys with an unprintable reason")
	case !ed25519.Verify(from, statement, k.FromSignature) || !ed25519.Verify(to, statement, k.ToSignature):
		err = errors.New("a change of keys that its keys have not signed")
	}
	return k, err
}
