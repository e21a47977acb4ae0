package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"ringfence/internal/sys/keychain"
)

// readHead returns the checkpoint in the file beside the database, nil if there
// is none. Its signature is not verified.
func readHead(dir string) (*Checkpoint, error) {
	path := filepath.Join(dir, headFile)
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading checkpoint: %w", err)
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxNote {
		return nil, fmt.Errorf("%w: %s is not a checkpoint", ErrTampered, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading checkpoint: %w", err)
	}
	c, err := parseCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTampered, path, err)
	}
	return &c, nil
}

// ownTemp is what atomicfile names its temporary files for headFile and the journal.
var ownTemp = regexp.MustCompile(`^\.(` + regexp.QuoteMeta(headFile) + `|` + journalName + `)\.[0-9a-f]{16}\.tmp$`)

// removeTemps removes what a process left that died while it wrote headFile or
// made the journal. The lock of the ledger is held: nobody else is writing them.
func removeTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking for temporary files: %w", err)
	}
	for _, e := range entries {
		if !ownTemp.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing a temporary file: %w", err)
		}
	}
	return nil
}

// restore brings l to the state of its files, after L5, and returns the entry with
// which this opening begins. What the database does not have of the journal it has
// afterwards, on disk, unless something is wrong: then nothing was changed.
func (l *Ledger) restore(ctx context.Context, o Options, head *Checkpoint) (*request, error) {
	l.w = writer{chains: map[string]chain{}, nextSID: 1}
	img, err := readImage(l.journal.file, l.journal.size)
	if err != nil {
		return nil, err
	}
	transact := l.db.Read
	if img != nil {
		transact = l.db.Write
	}
	first := &request{durable: true, own: true}
	err = transact(ctx, func(tx *sql.Tx) error {
		size, err := countEntries(ctx, tx)
		if err != nil {
			return fmt.Errorf("counting entries: %w", err)
		}
		if size, err = replay(ctx, tx, img, size, head); err != nil {
			return err
		}
		if size == 0 {
			return l.create(o, head, first)
		}
		return l.resume(ctx, tx, o, head, size, first)
	})
	if err == nil && img != nil {
		if err = l.db.Sync(); err == nil {
			err = l.journal.eraseAll()
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
	}
	if err != nil {
		return nil, err
	}
	l.head, l.public = l.w.tree, o.Key.Public().(ed25519.PublicKey)
	l.settled, l.kept, l.durable = l.head.size, l.head.size, l.head.size
	l.signer, err = signer(o.Key, l.origin)
	return first, err
}

// create is restore for a new ledger.
func (l *Ledger) create(o Options, head *Checkpoint, first *request) error {
	if head != nil {
		return fmt.Errorf("%w: %s covers %d entries, the database has none", ErrRolledBack, headFile, head.Size)
	}
	l.boot, l.origin = 1, o.Origin
	if l.origin == "" {
		l.origin = defaultOrigin(o.Key.Public().(ed25519.PublicKey))
	}
	if !validOrigin(l.origin) {
		return fmt.Errorf("the origin %.200q is not 1 to %d printable ASCII characters without space and plus", l.origin, maxOrigin)
	}
	first.key = publicText(o.Key)
	body, err := json.Marshal(openBody{Key: first.key, Origin: l.origin, Program: o.Version})
	first.entries = []Entry{{SystemSession, TypeOpen, body}}
	return err
}

// defaultOrigin names a ledger after the key it is made with.
func defaultOrigin(key ed25519.PublicKey) string { return "ringfence/" + keychain.KeyID(key) }

// resume is restore for a ledger of size entries.
func (l *Ledger) resume(ctx context.Context, tx *sql.Tx, o Options, head *Checkpoint, size int64, first *request) error {
	if err := l.identify(ctx, tx, o, size); err != nil {
		return err
	}
	hashes := newNodes(ctx, tx)
	if err := l.compare(ctx, tx, hashes, head, size); err != nil {
		return err
	}
	var err error
	if l.w.tree, err = hashes.frontierAt(size); err != nil {
		return err
	}
	last, err := l.checkTail(ctx, tx, l.signed.Size, size)
	if err != nil {
		return err
	}
	l.boot = last.Boot + 1
	l.w.last = last.Time.UnixMicro()
	l.w.wall = l.w.last
	l.w.when.set(-1, l.w.last)
	if err := tx.QueryRowContext(ctx, "SELECT max(sid)+1 FROM sessions").Scan(&l.w.nextSID); err != nil {
		return fmt.Errorf("counting sessions: %w", err)
	}
	if l.w.chains[SystemSession], err = findChain(ctx, tx, SystemSession, size); err != nil {
		return err
	}
	clean := last.Session == SystemSession && last.Type == TypeClose
	body, err := json.Marshal(restartBody{Clean: clean, Program: o.Version, Uncovered: size - l.signed.Size})
	first.entries = []Entry{{SystemSession, TypeRestart, body}}
	return err
}

// identify checks that it is the ledger that the options mean.
func (l *Ledger) identify(ctx context.Context, tx *sql.Tx, o Options, size int64) error {
	raw, err := readLeaf(ctx, tx, 0)
	if err != nil {
		return err
	}
	opened, err := parseOpen(raw)
	if err != nil {
		return divergence(0, "%v", err)
	}
	l.origin = opened.Origin
	if o.Origin != "" && o.Origin != l.origin {
		return fmt.Errorf("its origin is %q, not %q", l.origin, o.Origin)
	}
	key, err := keyAt(ctx, tx, size)
	if err != nil {
		return err
	}
	if given := o.Key.Public().(ed25519.PublicKey); !key.Equal(given) {
		return fmt.Errorf("%w: by %s, and the key given is %s", ErrKey, keychain.KeyID(key), keychain.KeyID(given))
	}
	return nil
}

// compare holds L5: the tree must be what the newest checkpoints say, the one
// in the database and the one beside it.
func (l *Ledger) compare(ctx context.Context, tx *sql.Tx, hashes *nodes, head *Checkpoint, size int64) error {
	stored, err := newestCheckpoint(ctx, tx)
	if err != nil {
		return err
	}
	if head == nil && stored.Size > 0 {
		return fmt.Errorf("%w: %s is gone", ErrTampered, headFile)
	}
	l.signed = stored
	checkpoints := []Checkpoint{stored}
	if head != nil {
		checkpoints = append(checkpoints, *head)
	}
	for _, c := range checkpoints {
		if c.Size > size {
			return fmt.Errorf("%w: a checkpoint covers %d entries, the database has %d", ErrRolledBack, c.Size, size)
		}
		if c.Size == 0 {
			continue
		}
		if c, err = checkStored(ctx, tx, c.Size, c.Note); err != nil {
			return err
		}
		root, err := hashes.rootAt(c.Size)
		if err != nil {
			return err
		}
		if root != c.Root || c.Origin != l.origin {
			return fmt.Errorf("%w: the first %d entries are not those of the signed checkpoint", ErrTampered, c.Size)
		}
		if c.Size > l.signed.Size {
			l.signed = c
		}
	}
	return nil
}

// checkTail verifies the entries from..size-1, which no checkpoint covers: a
// crash leaves them, and they are kept if they chain. It returns the last entry
// and fills in the sessions of the incomplete tile.
func (l *Ledger) checkTail(ctx context.Context, tx *sql.Tx, from, size int64) (last Record, err error) {
	s := newSequence()
	start := from
	if from > 0 { // times and boots go on from the entry before
		start--
	}
	err = eachLeaf(ctx, tx, start, size, func(idx, sid int64, raw []byte) error {
		f, err := parseLeaf(raw)
		if err != nil {
			return divergence(idx, "%v", err)
		}
		if idx < from {
			s.time, s.boot = append(s.time, f.time...), f.boot
		} else {
			if s.chains[string(f.session)] == nil {
				c, err := findChain(ctx, tx, string(f.session), from)
				if err != nil {
					return err
				}
				s.chains[string(f.session)] = &c
			}
			if err := s.next(idx, sid, &f, leafHash(raw)); err != nil {
				return err
			}
		}
		if idx == size-1 {
			last, err = f.record(idx, raw)
		}
		return err
	})
	if err != nil {
		return Record{}, err
	}
	err = eachLeaf(ctx, tx, size&^(tileWidth-1), size, func(_, sid int64, _ []byte) error {
		l.w.tailSIDs = append(l.w.tailSIDs, sid)
		return nil
	})
	return last, err
}
