package api

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"ringfence/internal/act/loan"
)

// TestSecrets: values travel as bodies, and a session hands its own secrets to the engine
// that takes it over.
func TestSecrets(t *testing.T) {
	in(t, ServerOptions{}, testSecrets)
}

func testSecrets(t *testing.T, w *world) {
	f, c, ctx := w.engine, w.connect(Options{}), t.Context()
	if err := c.TokenSave(ctx, "k", []byte("\x00value")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.TokenLoad(ctx, "k"); err != nil || string(v) != "\x00value" {
		t.Errorf("loaded %q, %v", v, err)
	}
	if err := c.TokenDelete(ctx, "k"); err != nil {
		t.Error(err)
	}
	if _, err := c.TokenLoad(ctx, "k"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted, and loaded: %v", err)
	}
	if err := c.SetSecret(ctx, SecretInfo{Name: "s"}, []byte("of-a-secret")); err != nil {
		t.Error(err)
	}
	if v, _ := f.tokens.Load("s"); string(v.([]byte)) != "of-a-secret" {
		t.Errorf("set %q", v)
	}
	if err := c.RemoveSecret(ctx, "s"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if l, err := c.Secrets(ctx); err != nil || len(l.Secrets) != 1 || l.Protection == "" {
		t.Errorf("listed %+v, %v", l, err)
	}
	s := w.open(c)
	own := []loan.Own{{Name: "mine", Value: []byte("value-of-mine")}}
	got, err := s.Sentinels(ctx, own)
	if want := []loan.Sentinel{{Name: "mine", Text: "sentinel-of-mine"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("sentinels %+v, %v", got, err)
	}
	w.cut(false)
	synctest.Wait()
	if _, err := s.Sentinels(ctx, nil); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := [][]loan.Own{own, own, nil}; !reflect.DeepEqual(f.own, want) {
		t.Errorf("handed in %+v, want %+v", f.own, want)
	}
	if want := []string{"sentinel-of-mine", "again sentinel-of-mine"}; !slices.Equal(f.lent, want) {
		t.Errorf("the engines made %q, want %q", f.lent, want)
	}
}
