package keychain

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestCreateThenLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "k")
	var wg sync.WaitGroup
	keys := make([]ed25519.PrivateKey, 16)
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadOrCreate(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !k.Equal(keys[0]) {
			t.Fatal("concurrent callers got different keys")
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", fi.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%d files left, %v; want 1", len(entries), err)
	}
}

func TestMalformedFiles(t *testing.T) {
	good := privateText(make([]byte, 32))
	for _, text := range []string{
		"", "\n", good[:len(good)-1], good + "\n", " " + good, good + good,
		strings.Replace(good, "v1", "v2", 1),
		strings.Replace(good, "=", "", 1),
		strings.Replace(good, "A=", "B=", 1), // bits after the end
		strings.Repeat("A", 10_000),
	} {
		path := filepath.Join(t.TempDir(), "k")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadOrCreate(path); err == nil {
			t.Errorf("accepted %q", text)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("a malformed key file was changed")
		}
	}
}

func TestPublicText(t *testing.T) {
	pub := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	const want = "ringfence-pub/v1 ed25519 5340cfcb4e664444 O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="
	if got := PublicText(pub); got != want {
		t.Errorf("PublicText = %q, want %q", got, want)
	}
	if got, err := ParsePublic(want + "\n"); err != nil || !got.Equal(pub) {
		t.Errorf("ParsePublic: %v, %v", got, err)
	}
	for i := range len(want) * 8 {
		bad := []byte(want)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := ParsePublic(string(bad)); err == nil {
			t.Errorf("bit %d flipped: accepted %q", i, bad)
		}
	}
}

func FuzzParsePublic(f *testing.F) {
	f.Add(PublicText(make([]byte, 32)))
	f.Fuzz(func(t *testing.T, text string) {
		pub, err := ParsePublic(text)
		if err == nil && !bytes.Equal([]byte(PublicText(pub)), []byte(strings.TrimSuffix(text, "\n"))) {
			t.Errorf("two texts for one key: %q", text)
		}
	})
}
