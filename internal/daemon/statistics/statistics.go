// Package statistics counts what was asked of models: how many tokens, what they cost, how
// long it took, and how it ended, by session, persona, agent, model and day.
//
// It is no record and no evidence: that is the ledger's. What it holds can be deleted, is
// deleted when it is old, and may miss what was under way when the engine died. Budgets do
// not read it.
//
// Invariants:
//
//	T1  It is free of content: of a request it holds numbers, names that ringfence gave, and
//	    the name of the model. That is written by the agent, so only one that the service
//	    has answered to, since the recorder began, is kept, and it has no characters but
//	    those of names. Others are [OtherModel].
//	T2  Nobody waits for it: [Recorder.Note] puts an entry into a queue, and drops it if that
//	    is full. No failure of it is one of a request.
//	T3  It is bounded in time and in number: what is older than the days that are kept is
//	    neither shown nor kept once the next entry is written, nor are more than a million
//	    entries.
package statistics

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"ringfence/internal/sys/database"
)

// OtherModel stands in an entry for a model whose name is not kept (T1), behind the name of
// its provider: "openai/other".
const OtherModel = "other"

// An End says how a request to a model ended.
type End string

// The ends.
const (
	Answered End = "answered"
	Cut      End = "cut"    // the answer broke off: a budget was used up, or somebody went away
	Failed   End = "failed" // the service gave no answer that can be counted
	Denied   End = "denied" // by the policy, a budget or a person: it was not asked
)

// A Usage is what an answer used, in tokens. What is below zero counts as zero.
type Usage struct {
	Input, Output         int64
	CacheRead, CacheWrite int64
	Reasoning             int64 // of Output
	Estimated             bool  // the service did not say
}

// An Entry is one request to a model.
type Entry struct {
	Time           time.Time // when it was over
	Session        string
	Persona, Agent string
	Model          string // "provider/model"
	End            End
	Usage          Usage
	MicroUSD       int64         // what it cost; below zero: no price is known
	Took           time.Duration // from the decision to the end of the answer; 0 if denied
}

const (
	maxQueue  = 1024
	maxBatch  = 256
	maxRows   = 1_000_000
	maxTokens = 1 << 40 // of one kind, in one entry: so sums of all entries do not overflow
	maxName   = 128     // bytes of a model's
	maxModels = 1024    // that are remembered as answered to
	pruneEach = time.Hour
	openEach  = time.Minute // after it could not be opened
)

// schema is what is in the file. Times are milliseconds since 1970, UTC.
var schema = database.Options{
	ApplicationID: 0x72667374, // "rfst"
	Migrations: []string{`
CREATE TABLE inferences(
  id          INTEGER PRIMARY KEY,
  time        INTEGER NOT NULL,
  session     TEXT NOT NULL,
  persona     TEXT NOT NULL,
  agent       TEXT NOT NULL,
  model       TEXT NOT NULL,
  ended       TEXT NOT NULL,
  input       INTEGER NOT NULL,
  output      INTEGER NOT NULL,
  cache_read  INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning   INTEGER NOT NULL,
  estimated   INTEGER NOT NULL,
  micro_usd   INTEGER,
  took        INTEGER NOT NULL
) STRICT;
CREATE INDEX inferences_time ON inferences(time)`},
}

// Options say what a recorder writes, and where.
type Options struct {
	Path string // of the file; its directory must exist
	Days int    // that are kept; 0 is [DefaultDays]
	Now  func() time.Time
}

// DefaultDays is how many days are kept where nothing is said.
const DefaultDays = 90

// A Recorder writes entries. A nil Recorder writes none. Its methods may be called
// concurrently.
type Recorder struct {
	o     Options
	queue chan Entry
	begin sync.Once
	done  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lost   int // entries
}

// NewRecorder returns one that opens its file when there is something to write.
func NewRecorder(o Options) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Days == 0 {
		o.Days = DefaultDays
	}
	return &Recorder{o: o, queue: make(chan Entry, maxQueue)}
}

// Note has e written some time soon (T2).
func (r *Recorder) Note(e Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.begin.Do(func() { r.done.Go(r.write) })
	select {
	case r.queue <- e:
	default:
		r.lost++
	}
}

// Close writes what is in the queue and closes the file.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.queue)
	}
	lost := r.lost
	r.mu.Unlock()
	r.done.Wait()
	if lost > 0 {
		slog.Warn("statistics", slog.Int("entries that were dropped", lost))
	}
}

// A writer is the one goroutine that has the file.
type writer struct {
	o       Options
	db      *database.DB // nil: it is not open
	insert  *database.Stmt
	opened  time.Time // or tried to
	old     *database.Stmt
	many    *database.Stmt
	pruned  time.Time
	silence bool            // an error was logged, and nothing has worked since
	models  map[string]bool // that were answered to
}

func (r *Recorder) write() {
	w := &writer{o: r.o, models: map[string]bool{}}
	for first := range r.queue {
		batch := []Entry{first}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case e, ok := <-r.queue:
				if more = ok; ok {
					batch = append(batch, e)
				}
			default:
				more = false
			}
		}
		w.check(w.put(batch))
	}
	if w.db != nil {
		w.check(w.db.Close())
	}
}

// check logs the first of several errors.
func (w *writer) check(err error) {
	if err != nil && !w.silence {
		slog.Warn("writing statistics", slog.Any("err", err))
	}
	w.silence = err != nil
}

// open opens the file, or does nothing if it could not be a moment ago.
func (w *writer) open(now time.Time) error {
	if w.db != nil || !w.opened.IsZero() && now.Sub(w.opened) < openEach {
		return nil
	}
	w.opened = now
	db, err := database.OpenSQLite(context.Background(), w.o.Path, schema)
	if err != nil {
		return err
	}
	w.db = db
	w.insert = db.Prepare("INSERT INTO inferences(time, session, persona, agent, model, ended, input, output, cache_read, cache_write, reasoning, estimated, micro_usd, took)" +
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	w.old = db.Prepare("DELETE FROM inferences WHERE time < ?")
	w.many = db.Prepare("DELETE FROM inferences WHERE id <= (SELECT max(id) FROM inferences) - ?")
	return nil
}

func (w *writer) put(batch []Entry) error {
	now := w.o.Now()
	if err := w.open(now); err != nil || w.db == nil {
		return err
	}
	return w.db.Batch(context.Background(), func(b *database.Batch) error {
		for _, e := range batch {
			if err := b.Run(w.insert, e.values(w.model(e))...); err != nil {
				return err
			}
		}
		if now.Sub(w.pruned) < pruneEach {
			return nil
		}
		w.pruned = now
		if err := b.Run(w.old, since(now, w.o.Days)); err != nil {
			return err
		}
		return b.Run(w.many, int64(maxRows))
	})
}

// since is the oldest time that is kept.
func since(now time.Time, days int) int64 { return now.AddDate(0, 0, -days).UnixMilli() }

// values are those of the columns, within their bounds.
func (e Entry) values(model string) []any {
	var cost any
	if e.MicroUSD >= 0 {
		cost = min(e.MicroUSD, maxTokens)
	}
	var estimated int64
	if e.Usage.Estimated {
		estimated = 1
	}
	u := e.Usage
	return []any{
		e.Time.UnixMilli(), e.Session, e.Persona, e.Agent, model, string(e.End),
		bounded(u.Input), bounded(u.Output), bounded(u.CacheRead), bounded(u.CacheWrite), bounded(u.Reasoning),
		estimated, cost, bounded(e.Took.Milliseconds()),
	}
}

func bounded(n int64) int64 { return min(max(n, 0), maxTokens) }

// model is the name that is kept (T1).
func (w *writer) model(e Entry) string {
	if isName(e.Model) {
		if e.End == Answered && len(w.models) < maxModels {
			w.models[e.Model] = true
		}
		if e.End == Answered || w.models[e.Model] {
			return e.Model
		}
	}
	provider, _, _ := strings.Cut(e.Model, "/")
	if !isName(provider) {
		return OtherModel
	}
	return provider + "/" + OtherModel
}

func isName(s string) bool {
	foreign := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/@+-", r)
	}
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, foreign)
}
