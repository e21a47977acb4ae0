package database

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var schema = Options{ApplicationID: 77, Migrations: []string{
	"CREATE TABLE t(n INTEGER PRIMARY KEY, b BLOB); CREATE TABLE u(n REFERENCES t(n))",
	"ALTER TABLE t ADD COLUMN c TEXT",
}}

func mustOpen(t *testing.T, path string, o Options) *DB {
	t.Helper()
	db, err := OpenSQLite(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func insert(t *testing.T, db *DB, n, size int) error {
	return db.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO t(n, b) VALUES (?, zeroblob(?))", n, size)
		return err
	})
}

func count(t *testing.T, db *DB) (n int) {
	t.Helper()
	err := db.Read(t.Context(), func(tx *sql.Tx) error { return tx.QueryRow("SELECT count(*) FROM t").Scan(&n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c%d#e.db")
	old := schema
	old.Migrations = schema.Migrations[:1]
	db := mustOpen(t, path, old)
	if err := insert(t, db, 1, 0); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", fi.Mode(), err)
	}
	if _, err := OpenSQLite(t.Context(), path, Options{ApplicationID: 77, Migrations: schema.Migrations, ReadOnly: true}); !errors.Is(err, ErrForeign) {
		t.Errorf("reading an old schema: %v, want ErrForeign", err)
	}
	db = mustOpen(t, path, schema)
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows after the second migration, want 1", n)
	}
	db.Close()
	foreign := schema
	foreign.ApplicationID = 78
	for name, o := range map[string]Options{"newer schema": old, "other program": foreign} {
		if _, err := OpenSQLite(t.Context(), path, o); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", name, err)
		}
	}
}

func TestBadMigrationLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	bad := schema
	bad.Migrations = append(bad.Migrations[:2:2], "CREATE TABLE v(n); CREATE GARBAGE")
	if _, err := OpenSQLite(t.Context(), path, bad); err == nil || !strings.Contains(err.Error(), "to version 3") {
		t.Errorf("bad migration: %v", err)
	}
	mustOpen(t, path, schema) // has no table t, u, v, and version 0
}

func TestRefusesOddFiles(t *testing.T) {
	dir := t.TempDir()
	garbage, link := filepath.Join(dir, "garbage"), filepath.Join(dir, "link")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(garbage, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{garbage, link, dir, filepath.Join(dir, "none", "x.db")} {
		if _, err := OpenSQLite(t.Context(), path, schema); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := OpenSQLite(t.Context(), garbage, schema); !errors.Is(err, ErrDamaged) {
		t.Errorf("garbage: %v, want ErrDamaged", err)
	}
	missing := filepath.Join(dir, "missing")
	if _, err := OpenSQLite(t.Context(), missing, Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file to read: %v", err)
	}
}

func TestWriteIsAllOrNothing(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	stop := errors.New("stop")
	err := db.Write(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO t(n) VALUES (1)"); err != nil {
			return err
		}
		return stop
	})
	if !errors.Is(err, stop) || count(t, db) != 0 {
		t.Errorf("%v with %d rows, want the callback's error and none", err, count(t, db))
	}
	if err := db.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO u VALUES (9)")
		return err
	}); err == nil {
		t.Error("foreign keys are not enforced")
	}
	if err := db.Read(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO t(n) VALUES (1)")
		return err
	}); err == nil {
		t.Error("a reader could write")
	}
	readOnly := mustOpen(t, db.Path(), Options{ApplicationID: 77, Migrations: schema.Migrations, ReadOnly: true})
	if err := insert(t, readOnly, 1, 0); !errors.Is(err, ErrUnwritable) {
		t.Errorf("write to a read-only database: %v, want ErrUnwritable", err)
	}
}

// TestLogStaysSmall writes ten times walLimit from several goroutines that never
// pause.
func TestLogStaysSmall(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	var wg sync.WaitGroup
	const writers, each, size = 4, 100, 100 << 10
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := insert(t, db, w*each+i, size); err != nil {
					t.Error(err)
				}
				if err := db.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, db); n != writers*each {
		t.Errorf("%d rows, want %d", n, writers*each)
	}
	fi, err := os.Stat(db.Path() + "-wal")
	if err != nil || fi.Size() > 2*walHigh {
		t.Errorf("log of %d bytes, %v; want at most %d", fi.Size(), err, 2*walHigh)
	}
}

func TestReaderHoldsLog(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	err := db.Read(t.Context(), func(tx *sql.Tx) error {
		var before, after int
		if err := tx.QueryRow("SELECT count(*) FROM t").Scan(&before); err != nil {
			return err
		}
		for i := range 30 { // well beyond walHigh
			if err := insert(t, db, i, 1<<20); err != nil {
				return err
			}
		}
		if err := tx.QueryRow("SELECT count(*) FROM t").Scan(&after); err != nil || after != before {
			t.Errorf("a reader saw %d rows, then %d, %v", before, after, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// One write drains, unless the log is being drained beside it, and the next starts
	// it again.
	for i, began := 0, time.Now(); ; i++ {
		if err := insert(t, db, 100+i, 0); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(db.Path() + "-wal")
		if err == nil && fi.Size() <= walLimit {
			break
		}
		if err != nil || time.Since(began) > 30*time.Second {
			t.Fatalf("after %d writes a log of %d bytes, %v; want at most %d", i, fi.Size(), err, walLimit)
		}
	}
}

func TestFailedSyncIsFinal(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	good := db.log
	gone, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	db.log = gone
	if err := db.Sync(); !errors.Is(err, ErrUnwritable) {
		t.Errorf("Sync of a closed file: %v, want ErrUnwritable", err)
	}
	db.log = good
	if err := db.Sync(); !errors.Is(err, ErrUnwritable) {
		t.Errorf("Sync after a failed one: %v, want ErrUnwritable", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprint("durable=", durable), func(b *testing.B) {
			db, err := OpenSQLite(b.Context(), filepath.Join(b.TempDir(), "x.db"), schema)
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			n := 0
			for b.Loop() {
				n++
				err := db.Write(b.Context(), func(tx *sql.Tx) error {
					_, err := tx.Exec("INSERT INTO t(n, b) VALUES (?, zeroblob(500))", n)
					return err
				})
				if durable && err == nil {
					err = db.Sync()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
