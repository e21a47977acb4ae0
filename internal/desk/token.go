package desk

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"time"
)

// tokenDomain separates the authentication of tokens from any other use of a
// key.
const tokenDomain = "ringfence/approval-token/1\x00"

// A grant is an approval that was handed out and not yet consumed.
type grant struct {
	digest  Sum
	expires time.Time
}

// grant turns an approved answer into one with a token. An answer that comes
// after the caller stopped waiting grants nothing.
func (d *Desk) grant(ctx context.Context, digest Sum, a Answer) (Answer, error) {
	if !a.Approved {
		return a, nil
	}
	if ctx.Err() != nil {
		return Answer{Question: a.Question, Votes: a.Votes}, fmt.Errorf("asking a person: %w", context.Cause(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.opts.Now()
	maps.DeleteFunc(d.tokens, func(_ [16]byte, g grant) bool { return !now.Before(g.expires) })
	if len(d.tokens) >= maxTokens {
		return Answer{Question: a.Question, Votes: a.Votes}, fmt.Errorf("asking a person: %w: %d approvals unused", ErrCrowded, len(d.tokens))
	}
	var raw [16 + sha256.Size]byte
	rand.Read(raw[:16])
	g := grant{digest: digest, expires: now.Add(d.opts.TokenLife)}
	nonce := [16]byte(raw[:16])
	d.tokens[nonce] = g
	copy(raw[16:], d.mac(nonce, g))
	a.Token = base64.RawURLEncoding.EncodeToString(raw[:])
	a.Expires = g.expires
	return a, nil
}

// Consume uses up token for the call that digest describes. It returns nil
// exactly once for each token, however many callers try at once. Any attempt
// uses the token up, also one for another digest or one too late.
//
// Errors: ErrToken, ErrExpired; with any error the request is denied.
func (d *Desk) Consume(token string, digest Sum) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != 16+sha256.Size {
		return fmt.Errorf("consuming approval: %w: malformed", ErrToken)
	}
	nonce := [16]byte(raw[:16])

	d.mu.Lock()
	defer d.mu.Unlock()
	g, ok := d.tokens[nonce]
	if !ok {
		return fmt.Errorf("consuming approval: %w: used up, or not from this desk", ErrToken)
	}
	delete(d.tokens, nonce)
	if !hmac.Equal(raw[16:], d.mac(nonce, grant{digest: digest, expires: g.expires})) {
		return fmt.Errorf("consuming approval: %w: made for something else", ErrToken)
	}
	if !d.opts.Now().Before(g.expires) {
		return fmt.Errorf("consuming approval: %w", ErrExpired)
	}
	return nil
}

// mac is HMAC-SHA-256 over the domain, the nonce, the digest and the expiry in
// nanoseconds.
func (d *Desk) mac(nonce [16]byte, g grant) []byte {
	h := hmac.New(sha256.New, d.key[:])
	h.Write([]byte(tokenDomain))
	h.Write(nonce[:])
	h.Write(g.digest[:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(g.expires.UnixNano()))
	h.Write(at[:])
	return h.Sum(nil)
}
