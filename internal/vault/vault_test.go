package vault

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"ringfence/internal/act/loan"
	"ringfence/internal/sys/ipc"
)

// fakeRing is a keyring that may forget, refuse or never answer.
type fakeRing struct {
	mu      sync.Mutex
	kept    map[string]string
	refuse  error
	forgets bool
	silent  chan struct{} // nil: it answers
}

func (r *fakeRing) Get(service, user string) (string, error) {
	if r.silent != nil {
		<-r.silent
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.kept[service+"\x00"+user]
	if r.refuse != nil {
		return "", r.refuse
	}
	if !ok {
		return "", keyring.ErrNotFound
	}
	return v, nil
}

func (r *fakeRing) Set(service, user, password string) error {
	if r.silent != nil {
		<-r.silent
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse == nil && !r.forgets {
		r.kept[service+"\x00"+user] = password
	}
	return r.refuse
}

func now() time.Time { return time.Unix(1_800_000_000, 0) }

const real1, real2 = "s3cr3t-of-the-first-kind", "another-value-entirely-0"

// keepers are the two kinds that a vault can have, for one suite.
func keepers(t *testing.T) map[string]func(dir string) []Keeper {
	t.Helper()
	ring := &fakeRing{kept: map[string]string{}}
	return map[string]func(dir string) []Keeper{
		"file":    func(dir string) []Keeper { return []Keeper{File{filepath.Join(dir, "keys", "vault.key")}} },
		"keyring": func(dir string) []Keeper { return []Keeper{Keyring{Ring: ring, Home: dir, Wait: time.Minute}} },
		"keyring with a file behind it": func(dir string) []Keeper {
			return []Keeper{Keyring{Ring: ring, Home: dir, Wait: time.Minute}, File{filepath.Join(dir, "keys", "vault.key")}}
		},
		"keyring that refuses": func(dir string) []Keeper {
			return []Keeper{Keyring{Ring: &fakeRing{refuse: errors.New("no such service")}, Home: dir, Wait: time.Minute}, File{filepath.Join(dir, "keys", "vault.key")}}
		},
		"keyring that forgets": func(dir string) []Keeper {
			return []Keeper{Keyring{Ring: &fakeRing{forgets: true}, Home: dir, Wait: time.Minute}, File{filepath.Join(dir, "keys", "vault.key")}}
		},
		"keyring that is silent": func(dir string) []Keeper {
			silent := make(chan struct{})
			t.Cleanup(func() { close(silent) })
			return []Keeper{Keyring{Ring: &fakeRing{silent: silent, refuse: errors.New("late")}, Home: dir, Wait: time.Millisecond}, File{filepath.Join(dir, "keys", "vault.key")}}
		},
	}
}

// TestVault is the suite that holds whoever keeps the key.
func TestVault(t *testing.T) {
	for name, of := range keepers(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "vault.age")
			open := func() *Vault {
				t.Helper()
				v, err := Open(Options{Path: path, Keepers: of(dir), Now: now})
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			v := open()
			if _, err := Open(Options{Path: path, Keepers: of(dir), Now: now}); !errors.Is(err, ipc.ErrLocked) {
				t.Errorf("opened twice: %v", err)
			}
			bound := []loan.Binding{{Host: "API.Example.com", Prefix: "/v1/"}}
			check(t, v.Set(Secret{Name: "b", Value: []byte(real2)}), nil)
			check(t, v.Set(Secret{Name: "a", Value: []byte("to-be-replaced")}), nil)
			check(t, v.Set(Secret{Name: "a", Value: []byte(real1), Env: []string{"A_KEY"}, Bindings: bound}), nil)
			check(t, v.Set(Secret{Name: "gone", Value: []byte(real2)}), nil)
			check(t, v.Remove("gone"), nil)
			check(t, v.Remove("gone"), ErrNotFound)
			check(t, v.PutRecord("oauth/x", []byte(real2)), nil)
			check(t, v.PutRecord("oauth/y", nil), nil)
			check(t, v.DeleteRecord("oauth/y"), nil)
			made, err := v.Key("ca", func() ([]byte, error) { return []byte(real1), nil })
			check(t, err, nil)
			check(t, v.Close(), nil)

			v = open()
			got := v.Secrets()
			want := []Secret{
				{Name: "a", Value: []byte(real1), Env: []string{"A_KEY"}, Set: now().UTC(), Bindings: []loan.Binding{{
					Host: "api.example.com", Prefix: "/v1", Position: loan.Position{Header: "authorization", Form: "Bearer {}"},
				}}},
				{Name: "b", Value: []byte(real2), Set: now().UTC()},
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("kept %+v\nwant %+v", got, want)
			}
			if r, err := v.Record("oauth/x"); err != nil || string(r) != real2 {
				t.Errorf("record %q, %v", r, err)
			}
			_, err = v.Record("oauth/y")
			check(t, err, ErrNotFound)
			again, err := v.Key("ca", func() ([]byte, error) { return nil, errors.New("it is there") })
			if err != nil || string(again) != string(made) {
				t.Errorf("the key changed: %v", err)
			}
			check(t, v.Close(), nil)
			assertSealed(t, dir)
		})
	}
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// assertSealed: no file of dir has a value in it, or can be read by others (V1).
func assertSealed(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), real1) || strings.Contains(string(data), real2) {
			t.Errorf("%s has a value in it", path)
		}
		if fi, err := d.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, fi.Mode(), err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnreadable: what cannot be read is no empty vault, and stays as it is (V3).
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  error
	}{
		{"cut", func(t *testing.T, dir string) { check(t, os.Truncate(filepath.Join(dir, "vault.age"), 150), nil) }, ErrDamaged},
		{"emptied", func(t *testing.T, dir string) { check(t, os.Truncate(filepath.Join(dir, "vault.age"), 0), nil) }, ErrDamaged},
		{"without its key", func(t *testing.T, dir string) { check(t, os.Remove(filepath.Join(dir, "vault.key")), nil) }, ErrLocked},
		{"with another key", func(t *testing.T, dir string) {
			check(t, os.Remove(filepath.Join(dir, "vault.key")), nil)
			_, err := File{filepath.Join(dir, "vault.key")}.Make(freshKey)
			check(t, err, nil)
		}, ErrLocked},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Path: filepath.Join(dir, "vault.age"), Keepers: []Keeper{File{filepath.Join(dir, "vault.key")}}, Now: now}
			v, err := Open(o)
			check(t, err, nil)
			check(t, v.Set(Secret{Name: "a", Value: []byte(real1)}), nil)
			check(t, v.Close(), nil)
			c.spoil(t, dir)
			before, _ := os.ReadFile(o.Path)
			_, err = Open(o)
			check(t, err, c.want)
			if after, _ := os.ReadFile(o.Path); string(after) != string(before) {
				t.Error("the file changed")
			}
			if err != nil && strings.Contains(err.Error(), "AGE-SECRET") {
				t.Errorf("the error tells the key: %v", err)
			}
		})
	}
}

// TestInvalid: what cannot be kept is refused, by errors that do not tell the value.
func TestInvalid(t *testing.T) {
	v, err := Open(Options{Path: filepath.Join(t.TempDir(), "v"), Keepers: keepers(t)["file"](t.TempDir()), Now: now})
	check(t, err, nil)
	for name, s := range map[string]Secret{
		"no name":          {Value: []byte(real1)},
		"a name of paths":  {Name: "../a", Value: []byte(real1)},
		"too short":        {Name: "a", Value: []byte("s3cr3t-")},
		"too long":         {Name: "a", Value: make([]byte, MaxValue+1)},
		"two lines":        {Name: "a", Value: []byte(real1 + "\nX: y")},
		"loader":           {Name: "a", Value: []byte(real1), Env: []string{"LD_PRELOAD"}},
		"no host":          {Name: "a", Value: []byte(real1), Bindings: []loan.Binding{{}}},
		"too many places":  {Name: "a", Value: []byte(real1), Bindings: make([]loan.Binding, loan.MaxBindings+1)},
		"header of travel": {Name: "a", Value: []byte(real1), Bindings: []loan.Binding{{Host: "h.example", Position: loan.Position{Header: "Host"}}}},
	} {
		err := v.Set(s)
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "s3cr3t-") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, v.PutRecord("", nil), ErrInvalid)
	check(t, v.PutRecord("k", make([]byte, maxRecord+1)), ErrInvalid)
	if len(v.Secrets()) != 0 {
		t.Error("something was kept")
	}
	check(t, v.Close(), nil)
}

// FuzzParse: whatever is inside the encryption, nothing panics, and what is read can be
// written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":"ringfence-vault/v1","secrets":[{"name":"a","value":"czNjcjN0LXM=","set":"2027-01-01T00:00:00Z","bindings":[{"host":"h.example"}]}]}`))
	f.Add([]byte(`{"format":"ringfence-vault/v2"}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		c, err := parse(plain)
		if err != nil {
			return
		}
		v := &Vault{c: c}
		for _, s := range v.Secrets() {
			if again, err := s.canonical(); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("not canonical: %+v, %v", s, err)
			}
		}
	})
}
