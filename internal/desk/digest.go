package desk

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"ringfence/internal/act"
)

// A Bound is everything that an approval is bound to. Two calls with the same
// Bound are the same call to a person; a change of any field is another call.
type Bound struct {
	Principal string // "persona/agent"
	Session   string
	Server    string
	ServerPin string // hash of what the server is: its argv or program; "" when it has none
	Tool      string
	ToolPin   string       // hash of the tool's definition; "" when it has none
	Args      [32]byte     // SHA-256 of the resolved arguments in canonical form (RFC 8785), so the order of keys does not count
	Effects   []act.Effect // resolved, in the order shown
	Policy    string       // hash of the policy in force
	Clauses   []string     // ids of the clauses asked for; order and repetition do not count
}

// digestDomain separates these digests from any other SHA-256 in the tree.
const digestDomain = "ringfence/approval/1"

// Digest returns what an answer binds to: SHA-256 over the domain and the fields
// of b in the order of the struct. A string is its length as a big-endian
// uint64 and its bytes, a list is its length and its members, so no two
// different values share an encoding. Facts of effects are not covered: they
// describe the resource, and may grow while a person thinks.
func Digest(b Bound) Sum {
	d := digester{sha256.New()}
	d.str(digestDomain)
	d.str(b.Principal)
	d.str(b.Session)
	d.str(b.Server)
	d.str(b.ServerPin)
	d.str(b.Tool)
	d.str(b.ToolPin)
	d.str(string(b.Args[:]))
	d.num(len(b.Effects))
	for _, e := range b.Effects {
		d.str(string(e.Kind))
		d.str(string(e.Resource.Type))
		d.str(e.Resource.Text)
		tree := 0
		if e.Tree {
			tree = 1
		}
		d.num(tree)
		d.str(string(e.Group))
	}
	d.str(b.Policy)
	clauses := slices.Compact(slices.Sorted(slices.Values(b.Clauses)))
	d.num(len(clauses))
	for _, c := range clauses {
		d.str(c)
	}
	return Sum(d.h.Sum(nil))
}

type digester struct{ h hash.Hash }

func (d digester) num(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.h.Write(b[:])
}

func (d digester) str(s string) {
	d.num(len(s))
	d.h.Write([]byte(s))
}
