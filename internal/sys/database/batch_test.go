package database

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// deferred is a schema whose constraint is checked by COMMIT.
var deferred = Options{Migrations: []string{
	"CREATE TABLE t(n INTEGER PRIMARY KEY, b BLOB); CREATE TABLE u(n REFERENCES t(n) DEFERRABLE INITIALLY DEFERRED)",
}}

func TestBatchIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db := mustOpen(t, path, deferred)
	row, child, wrong := db.Prepare("INSERT INTO t(n, b) VALUES (?, ?)"), db.Prepare("INSERT INTO u(n) VALUES (?)"), db.Prepare("INSERT INTO none VALUES (1)")
	stop := errors.New("stop")
	n := int64(0)
	for name, c := range map[string]struct {
		run  func(*Batch) error
		want error
	}{
		"its function fails": {func(*Batch) error { return stop }, stop},
		"a statement fails":  {func(b *Batch) error { return b.Run(row, int64(1), "x") }, nil},
		"no such table":      {func(b *Batch) error { return b.Run(wrong) }, nil},
		"too few arguments":  {func(b *Batch) error { return b.Run(row, int64(9)) }, nil},
		"COMMIT fails":       {func(b *Batch) error { return b.Run(child, int64(-1)) }, ErrUnwritable},
	} {
		insert := func(more func(*Batch) error) error {
			n++
			return db.Batch(t.Context(), func(b *Batch) error { return errors.Join(b.Run(row, n, []byte("x")), more(b)) })
		}
		if err := insert(func(*Batch) error { return nil }); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		before := count(t, db)
		if err := insert(c.run); err == nil || c.want != nil && !errors.Is(err, c.want) || count(t, db) != before {
			t.Errorf("%s: %v with %d rows, want %v and %d", name, err, count(t, db), c.want, before)
		}
	}
	readOnly := mustOpen(t, path, Options{Migrations: deferred.Migrations, ReadOnly: true})
	if err := readOnly.Batch(t.Context(), func(*Batch) error { return nil }); !errors.Is(err, ErrUnwritable) {
		t.Errorf("batch in a read-only database: %v, want ErrUnwritable", err)
	}
	if err := errors.Join(readOnly.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is there after Close (%v): a compiled statement holds the file", err)
	}
}

// TestBatchesAmongWrites has both from several goroutines; some Writes are
// interrupted, after which their connection is not used again.
func TestBatchesAmongWrites(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	row := db.Prepare("INSERT INTO t(n, b) VALUES (?, ?)")
	const each = 50
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range each {
				err := db.Batch(t.Context(), func(b *Batch) error { return b.Run(row, int64(w*each+i), make([]byte, 20<<10)) })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 10 {
		if err := insert(t, db, 1000+i, 100); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := db.Write(ctx, func(tx *sql.Tx) error {
			go cancel()
			var n int // there is no end to this
			return tx.QueryRowContext(ctx, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c").Scan(&n)
		})
		if err == nil {
			t.Error("a Write went on after its context had ended")
		}
	}
	wg.Wait()
	if n := count(t, db); n != 3*each+10 {
		t.Errorf("%d rows, want %d", n, 3*each+10)
	}
}

// TestBatchesKeepLogSmall writes ten times walLimit.
func TestBatchesKeepLogSmall(t *testing.T) {
	db := mustOpen(t, filepath.Join(t.TempDir(), "x.db"), schema)
	row := db.Prepare("INSERT INTO t(n, b) VALUES (?, ?)")
	for i := range int64(400) {
		if err := db.Batch(t.Context(), func(b *Batch) error { return b.Run(row, i, make([]byte, 100<<10)) }); err != nil {
			t.Fatal(err)
		}
	}
	if fi, err := os.Stat(db.Path() + "-wal"); err != nil || fi.Size() > 2*walHigh {
		t.Errorf("log of %d bytes, %v; want at most %d", fi.Size(), err, 2*walHigh)
	}
}
