package ledger

import (
	"crypto/sha256"
	"math/bits"
)

// A range over the tree of RFC 6962, section 2.1, that keeps only the roots of
// the perfect subtrees at its right edge. The zero frontier is the empty tree.
type frontier struct {
	size  int64
	roots [63][32]byte // roots[l] is in use where bit l of size is set
}

// A tileRoot is the root of a perfect subtree of 256^level leaves, the n-th of
// its level.
type tileRoot struct {
	level int
	n     int64
	hash  [32]byte
}

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// add appends a leaf hash and calls complete for each tile that it completes,
// lowest first.
func (f *frontier) add(h [32]byte, complete func(tileRoot)) {
	level := 0
	for ; f.size>>level&1 == 1; level++ {
		h = nodeHash(f.roots[level], h)
		if (level+1)%tileHeight == 0 {
			complete(tileRoot{(level + 1) / tileHeight, f.size >> (level + 1), h})
		}
	}
	f.roots[level] = h
	f.size++
}

// become makes f what g is, and does not copy what is not in use.
func (f *frontier) become(g *frontier) {
	f.size = g.size
	n := bits.Len64(uint64(g.size))
	copy(f.roots[:n], g.roots[:n])
}

// root returns the Merkle tree hash.
func (f *frontier) root() [32]byte {
	if f.size == 0 {
		return sha256.Sum256(nil)
	}
	level := bits.TrailingZeros64(uint64(f.size))
	h := f.roots[level]
	for level++; f.size>>level != 0; level++ {
		if f.size>>level&1 == 1 {
			h = nodeHash(f.roots[level], h)
		}
	}
	return h
}

// nodeHash is the RFC 6962 hash of an inner node.
func nodeHash(left, right [32]byte) [32]byte {
	var buf [65]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[33:], right[:])
	return sha256.Sum256(buf[:])
}

// fold returns the root of the perfect tree over hashes, whose number must be a
// power of two. It overwrites hashes.
func fold(hashes [][32]byte) [32]byte {
	for n := len(hashes); n > 1; n /= 2 {
		for i := range n / 2 {
			hashes[i] = nodeHash(hashes[2*i], hashes[2*i+1])
		}
	}
	return hashes[0]
}
