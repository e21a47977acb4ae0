package cli

import (
	"bytes"
	"os"
	"testing"
	"time"

	"ringfence/internal/egress/trust"
	"ringfence/internal/sys/paths"
)

// TestTrustStoreIsKept: a store is made once for a bundle, and never taken for that of
// another.
func TestTrustStoreIsKept(t *testing.T) {
	home := t.TempDir()
	t.Setenv("RINGFENCE_HOME", home)
	first, second := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n")
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	if got := storeOf(first, early); !bytes.Equal(got, trust.Store(first, early)) {
		t.Error("not the store of its bundle")
	}
	if got := storeOf(first, late); !bytes.Equal(got, trust.Store(first, early)) {
		t.Error("made again")
	}
	if got := storeOf(second, late); !bytes.Equal(got, trust.Store(second, late)) {
		t.Error("not the store of the other bundle")
	}
	if err := os.Truncate(paths.TrustStore(home), 7); err != nil {
		t.Fatal(err)
	}
	if got := storeOf(second, early); !bytes.Equal(got, trust.Store(second, early)) {
		t.Error("a spoiled file is used")
	}
}
