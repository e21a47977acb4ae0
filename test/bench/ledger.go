package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ringfence/internal/ledger"
)

// decided is about what the gate records of one decision.
const decided = `{"args":{"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":412},` +
	`"effects":[{"kind":"read","resource":{"text":"/home/u/src/project/main.go","type":"Path"}}],"policy":"0f3c9a1e2b7d4c5a",` +
	`"reason":"reading is free under ~/src","rules":["c1"],"tool":"filesystem.read_file","verdict":"allow"}`

func openLedger(ctx context.Context, dir string) (*ledger.Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return ledger.Open(ctx, dir, ledger.Options{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))})
}

// appends measures entries that are on disk when their writer goes on, beside
// lines of the same length in a file, flushed the same way.
func appends(ctx context.Context, b *bench) (err error) {
	l, err := openLedger(ctx, b.dir+"/append")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	file, err := openLines(b.dir + "/lines")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	line := []byte(decided + "\n")
	ours := func(session string) error { return record(ctx, l, session, true) }
	mine, theirs, err := inTurn(ctx, b.times(2000), func() error { return ours("s0") }, func() error { return file.append(line) })
	if err != nil {
		return err
	}
	b.add(latency("ledger: an entry on disk, one writer", mine, "a line in a file, and fsync", theirs).within(mine.p50(), 500*time.Microsecond))

	if err := unflushed(ctx, b, l, line); err != nil {
		return err
	}
	const writers = 512
	names := make([]string, writers)
	for i := range names {
		names[i] = fmt.Sprint("w", i)
	}
	a, c, err := crowdsInTurn(ctx, b.times(10), writers, b.times(40),
		func(k int) error { return ours(names[k]) }, func(int) error { return file.append(line) })
	if err != nil {
		return err
	}
	b.add(rates(fmt.Sprintf("ledger: entries on disk, %d writers", writers), "entries", a.rate, "lines in a file, one fsync for all that wait", c.rate).
		atLeast(a.rate, 50_000, "entries"))
	return nil
}

// unflushed measures entries that are written when their writer goes on, and on
// disk some time later.
func unflushed(ctx context.Context, b *bench, l *ledger.Ledger, line []byte) (err error) {
	file, err := os.OpenFile(b.dir+"/unflushed", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	mine, theirs, err := inTurn(ctx, b.times(2000),
		func() error { return record(ctx, l, "s1", false) }, func() error { _, err := file.Write(line); return err })
	if err != nil {
		return err
	}
	b.add(latency("ledger: an entry written, not yet on disk, one writer", mine, "a line in a file", theirs))
	return nil
}

func record(ctx context.Context, l *ledger.Ledger, session string, durable bool) error {
	_, err := l.Append(ctx, durable, ledger.Entry{Session: session, Type: "decision", Body: []byte(decided)})
	return err
}

// Lines is a file that many append to: whoever waits shares one write and one
// fsync.
type lines struct {
	f     *os.File
	queue chan line
	done  chan struct{}
}

type line struct {
	text []byte
	done chan error
}

func openLines(name string) (*lines, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lines{f: f, queue: make(chan line, 1024), done: make(chan struct{})}
	go l.run()
	return l, nil
}

func (l *lines) run() {
	defer close(l.done)
	for first := range l.queue {
		group, text := []line{first}, bytes.Clone(first.text)
		for len(l.queue) > 0 {
			next := <-l.queue
			group, text = append(group, next), append(text, next.text...)
		}
		_, err := l.f.Write(text)
		if err == nil {
			err = l.f.Sync()
		}
		for _, w := range group {
			w.done <- err
		}
	}
}

func (l *lines) append(text []byte) error {
	w := line{text, make(chan error, 1)}
	l.queue <- w
	return <-w.done
}

func (l *lines) close() error {
	close(l.queue)
	<-l.done
	return l.f.Close()
}

// verifies measures the verification of a whole ledger, beside hashing the same
// entries out of a plain file into one chain.
func verifies(ctx context.Context, b *bench) (err error) {
	l, err := openLedger(ctx, b.dir+"/verify")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	entries := b.times(300) * ledger.MaxBatch
	batch := make([]ledger.Entry, ledger.MaxBatch)
	for i := range batch {
		batch[i] = ledger.Entry{Session: fmt.Sprint("s", i%16), Type: "decision", Body: []byte(decided)}
	}
	for range entries / len(batch) {
		if _, err := l.Append(ctx, false, batch...); err != nil {
			return err
		}
	}
	plain, err := os.Create(b.dir + "/plain")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(plain)
	err = l.Entries(ctx, ledger.Query{}, func(r ledger.Record) error {
		_, err := w.Write(append(slices.Clip(r.Raw), '\n'))
		return err
	})
	if err = errors.Join(err, w.Flush(), plain.Close()); err != nil {
		return err
	}
	mine, theirs, err := inTurn(ctx, b.times(8),
		func() error {
			v, err := l.Verify(ctx)
			if err == nil && (v.Status != ledger.Valid || v.Entries < int64(entries)) {
				err = fmt.Errorf("the ledger is %v: %s", v.Status, v.Reason)
			}
			return err
		},
		func() error { return chain(b.dir + "/plain") })
	if err != nil {
		return err
	}
	perSecond := func(s series) (r []float64) {
		for _, d := range s {
			r = append(r, float64(entries)/d.Seconds())
		}
		return r
	}
	a, c := perSecond(mine), perSecond(theirs)
	b.add(rates(fmt.Sprintf("ledger: verify %s entries", grouped(float64(entries))), "entries", a, "one SHA-256 chain over a file of them", c).
		atLeast(a, 300_000, "entries"))
	return nil
}

func chain(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var last [sha256.Size]byte
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 2*ledger.MaxBody)
	h := sha256.New()
	for lines.Scan() {
		h.Reset()
		h.Write(last[:])
		h.Write(lines.Bytes())
		h.Sum(last[:0])
	}
	return lines.Err()
}
