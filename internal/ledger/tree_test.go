package ledger

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestFrontier compares the tree with that of package tlog at every size, and
// the roots of tiles with its stored hashes.
func TestFrontier(t *testing.T) {
	var f frontier
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	tiles := 0
	for n := range int64(70_000) {
		if n < 600 || n%997 == 0 {
			if want, err := tlog.TreeHash(n, reader); err != nil || tlog.Hash(f.root()) != want {
				t.Fatalf("root of %d leaves: %x, want %x, %v", n, f.root(), want, err)
			}
		}
		raw := fmt.Append(nil, n)
		hashes, err := tlog.StoredHashes(n, raw, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		f.add(leafHash(raw), func(r tileRoot) {
			tiles++
			if want := stored[tlog.StoredHashIndex(r.level*tileHeight, r.n)]; tlog.Hash(r.hash) != want {
				t.Fatalf("tile %d of level %d is %x, want %x", r.n, r.level, r.hash, want)
			}
		})
	}
	if tiles != 70_000/256+1 {
		t.Errorf("%d tiles", tiles)
	}
}

// TestManyWriters fills the second level of tiles from several goroutines,
// opens the ledger again, and proves entries all over it.
func TestManyWriters(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	var wg sync.WaitGroup
	const writers, batches, size = 8, 33, 256
	for w := range writers {
		wg.Go(func() {
			batch := make([]Entry, size)
			for b := range batches {
				for i := range batch {
					batch[i] = Entry{fmt.Sprint("s", w), "note", fmt.Appendf(nil, `{"n":%d}`, b*size+i)}
				}
				if refs, err := l.Append(t.Context(), b%2 == 0, batch...); err != nil || refs[0].Seq != int64(b*size) {
					t.Errorf("batch %d of writer %d: %v", b, w, err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, o)
	rng := rand.New(rand.NewPCG(1, 1))
	const total = writers*batches*size + 3 // with open, close, restart
	for range 50 {
		index := rng.Int64N(total)
		proof, err := l.Prove(t.Context(), index)
		if err != nil {
			t.Fatal(err)
		}
		r := all(t, l, Query{FromIndex: index, Limit: 1})[0]
		if v := VerifyProof(proof, r.Raw, testPublic); v.Status != Valid || v.Size != total {
			t.Fatalf("proof of entry %d: %+v", index, v)
		}
	}
	if _, err := l.Prove(t.Context(), total); err == nil {
		t.Error("proved an entry that is not there")
	}
	if refs := mustAppend(t, l, Entry{"s3", "note", []byte("{}")}); refs[0].Seq != batches*size {
		t.Errorf("session s3 goes on with %d, want %d", refs[0].Seq, batches*size)
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid || v.Entries != total+1 || v.Sessions != writers+1 {
		t.Errorf("%+v, %v", v, err)
	}
	info, err := l.Sessions(t.Context())
	if err != nil || len(info) != writers+1 {
		t.Fatalf("%d sessions, %v", len(info), err)
	}
	for _, s := range info[1:] {
		if n := int64(len(all(t, l, Query{Session: s.Session}))); s.Entries != n || n < batches*size {
			t.Errorf("session %s lists %d entries and has %d", s.Session, s.Entries, n)
		}
	}
}
