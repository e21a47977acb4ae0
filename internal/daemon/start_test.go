package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDescriptorThreeOfOthers: only a pipe is written to and closed, whatever
// descriptor 3 of an engine that was not started by us is.
func TestDescriptorThreeOfOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "theirs")
	if err := os.WriteFile(name, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toStarter(theirs); err == nil {
		t.Error("a file is taken for a pipe")
	}
	if err := theirs.Close(); err != nil {
		t.Errorf("it was closed: %v", err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, []byte("theirs")) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := toStarter(theirs); err == nil {
		t.Error("a closed descriptor is taken for a pipe")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := toStarter(w); err != nil {
		t.Error(err)
	}
}
