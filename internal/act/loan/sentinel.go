package loan

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// A Sentinel is what a box of one session has in the place of a secret, as the egress of
// that session is told: never the value.
type Sentinel struct {
	Name     string    `json:"name"`
	Text     string    `json:"text"`
	Env      []string  `json:"env,omitempty"` // variables in which it is shown
	Bindings []Binding `json:"bindings,omitempty"`
}

const (
	minBits  = 64
	fullBits = 128 // of a sentinel that had to be made longer than the value
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	number = "0123456789"
)

// prefixes are public beginnings of values, by which clients know what they are given.
// The longest that fits is kept. They are those that the issuers document, as the
// shapes of package inspect.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-oat01-", "sk-ant-admin01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk-",
	"AIza", "ya29.", "GOCSPX-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glrt-", "xoxb-", "xoxp-", "xapp-",
	"sk_live_", "sk_test_", "rk_live_", "npm_", "pypi-AgE", "hf_", "SG.", "dop_v1_", "dckr_pat_", "AKIA", "ASIA",
}

// NewSentinel returns text of the shape of value: its public prefix, its length, and
// for each further letter or digit one of the same alphabet, so that clients which look
// at a key accept it; punctuation stays. A value that has no room for 64 random bits
// gets a longer sentinel. random must be cryptographic.
func NewSentinel(value []byte, random io.Reader) (string, error) {
	prefix := ""
	for _, p := range prefixes {
		if len(p) > len(prefix) && bytes.HasPrefix(value, []byte(p)) {
			prefix = p
		}
	}
	rest := value[len(prefix):]
	letters := alphabet(rest)
	perLetter := math.Log2(float64(len(letters)))
	for range 8 {
		var out strings.Builder
		out.WriteString(prefix)
		bits := 0.0
		for _, c := range rest {
			if !isAlnum(c) {
				if c < '!' || c > '~' || strings.IndexByte(`"'\<>&%`, c) >= 0 {
					c = '-' // shells, URLs and markup read it in several ways
				}
				out.WriteByte(c)
				continue
			}
			pick, err := choose(letters, random)
			if err != nil {
				return "", err
			}
			out.WriteByte(pick)
			bits += perLetter
		}
		for missing := bits < minBits; missing && bits < fullBits; bits += perLetter {
			pick, err := choose(letters, random)
			if err != nil {
				return "", err
			}
			out.WriteByte(pick)
		}
		if s := out.String(); s != string(value) {
			return s, nil
		}
	}
	return "", fmt.Errorf("making a sentinel: the random source repeats itself")
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// alphabet is what the letters and digits of b are of: hexadecimal, or each of digits,
// lower and upper case that occurs.
func alphabet(b []byte) string {
	digit, small, large, hexOnly := false, false, false, true
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digit = true
		case c >= 'a' && c <= 'z':
			small, hexOnly = true, hexOnly && c <= 'f'
		case c >= 'A' && c <= 'Z':
			large, hexOnly = true, hexOnly && c <= 'F'
		}
	}
	switch {
	case digit && hexOnly && small != large:
		if small {
			return number + lower[:6]
		}
		return number + upper[:6]
	case !digit && !small && !large:
		return lower + number
	}
	var out strings.Builder
	for _, set := range []struct {
		seen  bool
		chars string
	}{{digit, number}, {small, lower}, {large, upper}} {
		if set.seen {
			out.WriteString(set.chars)
		}
	}
	return out.String()
}

// choose picks one of letters, each with the same chance.
func choose(letters string, random io.Reader) (byte, error) {
	limit := 256 - 256%len(letters)
	var b [1]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("making a sentinel: %w", err)
		}
		if int(b[0]) < limit {
			return letters[int(b[0])%len(letters)], nil
		}
	}
}

// Environment returns the variables in which sentinels are shown, as NAME=text, without
// those that env sets already. Of two sentinels for one variable the first wins.
func Environment(sentinels []Sentinel, env []string) []string {
	var out []string
	set := func(name string) bool {
		has := func(kv string) bool { return strings.HasPrefix(kv, name+"=") }
		return slices.ContainsFunc(env, has) || slices.ContainsFunc(out, has)
	}
	for _, s := range sentinels {
		for _, name := range s.Env {
			if !set(name) {
				out = append(out, name+"="+s.Text)
			}
		}
	}
	return out
}
