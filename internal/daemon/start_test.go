package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
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

// TestStormOfEngines: while an engine that could not start tells why, clients
// hear that at once and start no other.
func TestStormOfEngines(t *testing.T) {
	for _, c := range []struct {
		name, want string
		code       api.Code
		spoil      func(ledger string) (mend func() error, err error)
	}{
		{"damaged", "tampered", api.CodeNotStarted, func(dir string) (func() error, error) {
			name := filepath.Join(dir, "head.note")
			was, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(name, []byte("garbage"), 0o600)
			}
			return func() error { return os.WriteFile(name, was, 0o600) }, err
		}},
		{"locked by a stranger", "another process", api.CodeUnavailable, func(dir string) (func() error, error) {
			lock, err := ipc.NewLock(filepath.Join(dir, "lock"))
			return lock.Unlock, err
		}},
		{"no directory", "not a directory", api.CodeUnavailable, func(dir string) (func() error, error) {
			err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
			return func() error { return os.Remove(dir) }, err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t).start(Options{})
			f.end()
			mend, err := c.spoil(paths.LedgerDir(f.home))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			told := make(chan error, 1)
			ended := make(chan error, 1)
			go func() {
				ended <- Run(ctx, Options{Home: f.home, UserHome: f.user, Failed: func(err error) { told <- err }, Linger: time.Hour})
			}()
			said := notStarted(<-told)
			if err := heard(line(said)); !errors.Is(err, said) || err.Error() != said.Message || !strings.Contains(said.Message, c.want) {
				t.Errorf("the starter heard %v", err)
			}
			start := func(context.Context) error { t.Error("a client starts another engine"); return nil }
			var clients sync.WaitGroup
			for range 20 {
				clients.Go(func() {
					_, err := api.Connect(context.Background(), api.Options{Home: f.home, Start: start})
					if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != c.code || !strings.Contains(e.Message, c.want) {
						t.Errorf("a client heard %v", err)
					}
				})
			}
			clients.Wait()
			if err := mend(); err != nil {
				t.Fatal(err)
			}
			if c.code == api.CodeUnavailable { // else that its file is another ends it
				stop()
			}
			if err := <-ended; err == nil || errors.Is(err, ipc.ErrLocked) {
				t.Errorf("the engine ended with %v", err)
			}
			stop()
			f.start(Options{}).open(f.client())
		})
	}
}

// TestRepairedConfiguration: no client hears of an error that is mended by then, not even
// the one that connects at once.
func TestRepairedConfiguration(t *testing.T) {
	f := newFixture(t).start(Options{})
	f.end()
	name := paths.ConfigFile(f.home)
	for range 20 {
		if err := os.WriteFile(name, []byte(`{"x": 1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		told, ended := make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- Run(context.Background(), Options{Home: f.home, UserHome: f.user, Failed: func(err error) { told <- err }, Linger: time.Hour})
		}()
		if err := <-told; err == nil {
			t.Error("it did not say why")
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		again := errors.New("the next engine is started")
		_, err := api.Connect(context.Background(), api.Options{Home: f.home, Start: func(context.Context) error { return again }})
		if !errors.Is(err, again) {
			t.Fatalf("a client heard %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the engine did not fail")
		}
	}
}

// TestStormOfOneClient: a client whose engine does not even come to say why starts
// the next after a pause, and one that it gave up itself at once.
func TestStormOfOneClient(t *testing.T) {
	now := time.Unix(0, 0)
	starts := 0
	failed := errors.New("no")
	start := patient(func(context.Context) error { starts++; return failed }, func() time.Time { return now })
	gaveUp, cancel := context.WithCancel(context.Background())
	cancel()
	for i, c := range []struct {
		ctx    context.Context
		pass   time.Duration
		fail   error
		starts int
	}{
		{context.Background(), 0, failed, 1},
		{context.Background(), startPause - 1, failed, 1},
		{context.Background(), 1, failed, 2},
		{context.Background(), startPause, nil, 3},
		{gaveUp, 0, failed, 4},
		{context.Background(), 0, nil, 5},
		{context.Background(), 0, nil, 6},
	} {
		now = now.Add(c.pass)
		failed = c.fail
		if err := start(c.ctx); (err == nil) != (c.fail == nil) || starts != c.starts {
			t.Errorf("call %d: %v after %d starts, want %v and %d", i, err, starts, c.fail, c.starts)
		}
	}
}
