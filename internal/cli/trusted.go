package cli

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"time"

	"ringfence/internal/egress/trust"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
)

// storeOf is the trust store of Java for bundle. To make one takes longer than all else
// that a way out needs, so the last is kept in the home, behind the SHA-256 of its bundle.
func storeOf(bundle []byte, now time.Time) []byte {
	home, err := paths.Home()
	if err != nil {
		return trust.Store(bundle, now)
	}
	sum := sha256.Sum256(bundle)
	if store, ok := keptStore(paths.TrustStore(home), sum[:]); ok {
		return store
	}
	store := trust.Store(bundle, now)
	_ = atomicfile.Write(paths.TrustStore(home), append(sum[:], store...), 0o600) // else it is made again
	return store
}

// keptStore is the store in file, if it is that of a bundle with that sum.
func keptStore(file string, sum []byte) ([]byte, bool) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > sha256.Size+trust.MaxBundle {
		return nil, false
	}
	kept := make([]byte, info.Size())
	if _, err := io.ReadFull(f, kept); err != nil {
		return nil, false
	}
	return bytes.CutPrefix(kept, sum)
}
