package ledger

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// benchBody is about what the gate records of one decision.
const benchBody = `{"args":{"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":412},` +
	`"effects":[{"kind":"read","resource":{"text":"/home/u/src/project/main.go","type":"Path"}}],"policy":"0f3c9a1e2b7d4c5a",` +
	`"reason":"reading is free under ~/src","rules":["default.1"],"tool":"filesystem.read_file","verdict":"allow"}`

func benchLedger(b *testing.B) *Ledger {
	b.Helper()
	l, err := Open(b.Context(), b.TempDir(), Options{Key: ed25519.NewKeyFromSeed(make([]byte, 32))})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(context.WithoutCancel(b.Context())) })
	return l
}

func BenchmarkAppend(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			l := benchLedger(b)
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := l.Append(b.Context(), durable, Entry{"s", "decision", []byte(benchBody)}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			reportQuantiles(b, took)
		})
	}
}

// BenchmarkAppendIdle is an append by a process that has slept before, as an
// engine has: threads must be woken. Only the quantiles are of the append.
func BenchmarkAppendIdle(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			l := benchLedger(b)
			var took []time.Duration
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
				start := time.Now()
				if _, err := l.Append(b.Context(), durable, Entry{"s", "decision", []byte(benchBody)}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			reportQuantiles(b, took)
		})
	}
}

func BenchmarkAppendGrouped(b *testing.B) {
	for _, writers := range []int{16, 128, 512} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			l := benchLedger(b)
			var wg sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			took := make([][]time.Duration, writers)
			b.ResetTimer()
			for w := range writers {
				wg.Go(func() {
					session := fmt.Sprint("s", w)
					for left.Add(-1) >= 0 {
						start := time.Now()
						if _, err := l.Append(b.Context(), true, Entry{session, "decision", []byte(benchBody)}); err != nil {
							b.Error(err)
						}
						took[w] = append(took[w], time.Since(start))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
			reportQuantiles(b, slices.Concat(took...))
		})
	}
}

func reportQuantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkVerify verifies a ledger of 300,000 entries of 16 sessions.
func BenchmarkVerify(b *testing.B) {
	l := benchLedger(b)
	const entries = 300_000
	batch := make([]Entry, 500)
	for i := range batch {
		batch[i] = Entry{fmt.Sprint("s", i%16), "decision", []byte(benchBody)}
	}
	for range entries / len(batch) {
		if _, err := l.Append(b.Context(), false, batch...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if v, err := l.Verify(b.Context()); err != nil || v.Status != Valid || v.Entries < entries {
			b.Fatalf("%+v, %v", v, err)
		}
	}
	b.ReportMetric(float64(b.N)*entries/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkOpen(b *testing.B) {
	dir, o := b.TempDir(), Options{Key: ed25519.NewKeyFromSeed(make([]byte, 32))}
	l, err := Open(b.Context(), dir, o)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 / MaxBatch {
		batch := make([]Entry, MaxBatch)
		for j := range batch {
			batch[j] = Entry{fmt.Sprint("s", i%16), "decision", []byte(benchBody)}
		}
		if _, err := l.Append(b.Context(), false, batch...); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		l, err := Open(b.Context(), dir, o)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
