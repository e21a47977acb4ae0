package ledger

import (
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

var testPublic = []ed25519.PublicKey{testKey.Public().(ed25519.PublicKey)}

// runSQL runs SQL on the database of a closed ledger, as someone with write
// access would.
func runSQL(t *testing.T, dir string, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("DROP TRIGGER IF EXISTS entries_stay; DROP TRIGGER IF EXISTS entries_keep"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

// sampleDir makes a closed ledger of a few hundred entries, with several
// checkpoints.
func sampleDir(t *testing.T, entries int) string {
	t.Helper()
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions())
	for i := range entries {
		mustAppend(t, l, Entry{fmt.Sprint("s", i%3), "decision", fmt.Appendf(nil, `{"n":%d}`, i)})
		if i%100 == 50 {
			if _, err := l.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustAppend(t, l, Entry{"s0", TypeEnd, []byte("{}")})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func verifyDir(t *testing.T, dir string) Verification {
	t.Helper()
	v, err := VerifyDir(t.Context(), dir, testPublic)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerifyValid(t *testing.T) {
	dir := sampleDir(t, 700)
	v := verifyDir(t, dir)
	if v.Status != Valid || v.Entries != 703 || v.Size != 703 || v.Sessions != 4 || v.Checkpoints < 3 || v.Index != -1 || v.Origin != "example.com/test" {
		t.Errorf("%+v", v)
	}
	if v, err := VerifyDir(t.Context(), dir, nil); err != nil || v.Status != Incomplete || !strings.Contains(v.Reason, "not among") {
		t.Errorf("without a trusted key: %+v, %v", v, err)
	}
	l := mustOpen(t, dir, testOptions())
	mustAppend(t, l, Entry{"s1", "x", []byte("{}")})
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid || v.Entries < 705 {
		t.Errorf("while open: %+v, %v", v, err)
	}
}

// TestDamagedFile overwrites pages of the database.
func TestDamagedFile(t *testing.T) {
	good := sampleDir(t, 700)
	size, err := os.Stat(filepath.Join(good, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < size.Size(); at += 4096 * 7 {
		dir := copyDir(t, good)
		f, err := os.OpenFile(filepath.Join(dir, databaseFile), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(strings.Repeat("damage! ", 512)), at)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if v := verifyDir(t, dir); v.Status != Invalid || v.Reason == "" {
			t.Errorf("page at %d overwritten: %+v", at, v)
		}
		if l, err := Open(t.Context(), dir, testOptions()); err == nil {
			l.Close(t.Context()) // it looks at what it needs to go on
		} else if !errors.Is(err, ErrTampered) {
			t.Errorf("page at %d overwritten: %v, want ErrTampered", at, err)
		}
	}
	if err := os.Remove(filepath.Join(good, databaseFile)); err != nil {
		t.Fatal(err)
	}
	if v := verifyDir(t, good); v.Status != Invalid {
		t.Errorf("database gone: %+v", v)
	}
}

// TestR13Database changes a database in every way that one with write access
// and without the key could, and expects the first entry that is wrong.
func TestR13Database(t *testing.T) {
	good := sampleDir(t, 700)
	for _, c := range []struct {
		name  string
		query string
		index int64 // expected; -1: none can be named; 452: only the checkpoint before can
		says  string
	}{
		{"bit flip in a body", "UPDATE entries SET leaf = CAST(replace(leaf, '\"n\":399', '\"n\":398') AS BLOB) WHERE idx = 400", 400, "entry 400: it was changed: entry 403, the next of its session"},
		{"bit flip in the last entry of a session", "UPDATE entries SET leaf = CAST(replace(leaf, '{}', '{\"n\":1}') AS BLOB) WHERE idx = 701", 452, "from it on, up to entry 702, one was changed"},
		{"not canonical", "UPDATE entries SET leaf = CAST(replace(leaf, '\"n\":', '\"n\": ') AS BLOB) WHERE idx = 123", 123, "not canonical JSON"},
		{"not an envelope", "UPDATE entries SET leaf = x'7b7d' WHERE idx = 5", 5, "not an entry"},
		{"deletion", "DELETE FROM entries WHERE idx = 300", 300, "entry 300: it is missing"},
		{"deletion closed up", "DELETE FROM entries WHERE idx = 300; UPDATE entries SET idx = idx - 1 WHERE idx > 300", 302, "it is number 100 of session s2, and number 99, which belongs before it, is missing"},
		{"deletion of the first", "DELETE FROM entries WHERE idx = 0", 0, "entry 0: it is missing"},
		{"truncation", "DELETE FROM entries WHERE idx >= 690", 690, "entry 690: it and what follows it is gone"},
		{"truncation with its checkpoint", "DELETE FROM entries WHERE idx >= 690; DELETE FROM checkpoints WHERE size > 690", 690, "head.note was signed over 703 entries"},
		{"reordering", "UPDATE entries SET idx = -1 WHERE idx = 200; UPDATE entries SET idx = 200 WHERE idx = 203; UPDATE entries SET idx = 203 WHERE idx = -1", 200, "number 66, which belongs before it, is missing or was moved"},
		{"reordering across sessions", "UPDATE entries SET idx = -1 WHERE idx = 201; UPDATE entries SET idx = 201 WHERE idx = 202; UPDATE entries SET idx = 202 WHERE idx = -1", 202, "changed, or moved"},
		{"insertion", "INSERT INTO entries SELECT 703, sid, leaf FROM entries WHERE idx = 699", 703, "it was repeated, or moved"},
		{"moved to another session", "UPDATE entries SET sid = 3 WHERE idx = 100", 100, "it is of session s0, and the database has it under another"},
		{"renamed session", "UPDATE sessions SET name = 'other' WHERE sid = 2", 1, "its list of sessions was changed"},
		{"extra session", "INSERT INTO sessions VALUES (5, 'ghost', 9)", -1, "lists 5 sessions, and its entries have 4"},
		{"changed tile", "UPDATE tiles SET root = zeroblob(32) WHERE id = (SELECT min(id) FROM tiles)", -1, "entries 0 to 255"},
		{"missing tile", "DELETE FROM tiles", -1, "entries 0 to 255"},
		{"forged key", "UPDATE keys SET public = 'x'", 0, "its list of keys was changed"},
		{"checkpoint moved", "UPDATE checkpoints SET size = size - 1", -1, "the checkpoint in the database over the first 251 entries is one of ledger example.com/test over 252"},
		{"checkpoint changed", "UPDATE checkpoints SET note = CAST(replace(note, 'A', 'B') AS BLOB)", -1, "its signature is not by the key in force"},
		{"checkpoint of more than there is", "UPDATE checkpoints SET size = 9999 WHERE size = 703", 703, "there is one over 9999 entries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, good)
			runSQL(t, dir, c.query)
			v := verifyDir(t, dir)
			if v.Status != Invalid || v.Index != c.index || !strings.Contains(v.Reason, c.says) {
				t.Errorf("%v at %d (%s), want invalid at %d with %q", v.Status, v.Index, v.Reason, c.index, c.says)
			}
		})
	}
}
