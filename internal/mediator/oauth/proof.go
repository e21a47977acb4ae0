package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// What is signed here are JSON Web Tokens (RFC 7515, 7519) with ES256, or RS256 with a
// person's own key.

const maxNonce = 512 // bytes of a number for proofs

func part(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// sign returns the compact form of a token.
func sign(header, claims map[string]any, key crypto.Signer) (string, error) {
	head, err := part(header)
	if err != nil {
		return "", err
	}
	body, err := part(claims)
	if err != nil {
		return "", err
	}
	text := head + "." + body
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			return "", fmt.Errorf("signing: %w", err)
		}
		sig = make([]byte, 64)
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
	case *rsa.PrivateKey:
		if sig, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:]); err != nil {
			return "", fmt.Errorf("signing: %w", err)
		}
	default:
		return "", errors.New("signing: the key is of a kind that is not used")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// assertion says at the authorization server issuer that we are the client id, RFC 7523,
// section 3, with the one audience of its revision.
func (c *Client) assertion(id, issuer string) (string, error) {
	text, err := readFile(c.o.Server.Ringfence.OAuth.Key)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New(`what "key" of its entry names is no PEM file`)
	}
	key, algorithm, err := parseKey(block.Bytes)
	if err != nil {
		return "", err
	}
	now := c.o.Now()
	return sign(map[string]any{"alg": algorithm, "typ": "JWT"}, map[string]any{
		"iss": id, "sub": id, "aud": issuer, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(clockLead).Unix(),
	}, key)
}

// parseKey reads a private key, PKCS #8, that signs with an algorithm of RFC 7518.
func parseKey(der []byte) (crypto.Signer, string, error) {
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, "", errors.New("a key is no private key in PKCS #8")
	}
	switch k := k.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			return k, "ES256", nil
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 {
			return k, "RS256", nil
		}
	}
	return nil, "", errors.New("a key is neither one of P-256 nor one of RSA with 2048 bits")
}

// keyFor returns a new key that tokens of f are to be bound to, "" for none.
func (c *Client) keyFor(f found) (string, error) {
	if !slices.Contains(f.proofs, "ES256") {
		if f.bound {
			return "", errors.New("it takes only tokens that are bound to a key, and its authorization server has none that we could do (ES256)")
		}
		return "", nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(der), nil
}

// prove puts the proof of RFC 9449 into r: that we have the key, for this request alone,
// and for the token access if that is not "".
func (c *Client) prove(r *http.Request, key, access string) error {
	der, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return errors.New("the key that its token is bound to cannot be read")
	}
	signer, _, err := parseKey(der)
	if err != nil {
		return err
	}
	k, ok := signer.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("the key that its token is bound to is of another kind")
	}
	point, err := k.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return fmt.Errorf("proving a key: %w", err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	at := *r.URL
	at.RawQuery, at.Fragment, at.ForceQuery = "", "", false
	claims := map[string]any{"jti": rand.Text(), "htm": r.Method, "htu": at.String(), "iat": c.o.Now().Unix()}
	if access != "" {
		sum := sha256.Sum256([]byte(access))
		claims["ath"] = encode(sum[:])
	}
	c.mu.Lock()
	if n := c.nonces[nonceKey(r.URL)]; n != "" {
		claims["nonce"] = n
	}
	c.mu.Unlock()
	proof, err := sign(map[string]any{
		"typ": "dpop+jwt", "alg": "ES256",
		"jwk": map[string]any{"kty": "EC", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])},
	}, claims, k)
	if err != nil {
		return err
	}
	r.Header.Set("DPoP", proof)
	return nil
}

func nonceKey(u *url.URL) string { return u.Scheme + "://" + u.Host }

// nonce takes in the number that a server wants in the next proof, and reports whether it
// is another than before.
func (c *Client) nonce(from *url.URL, h http.Header) bool {
	n := h.Get("Dpop-Nonce")
	if n == "" || len(n) > maxNonce || !isScope(n) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := nonceKey(from)
	if len(c.nonces) >= maxServers && c.nonces[key] == "" {
		clear(c.nonces)
	}
	changed := c.nonces[key] != n
	c.nonces[key] = n
	return changed
}
