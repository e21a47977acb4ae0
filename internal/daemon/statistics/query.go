package statistics

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"ringfence/internal/sys/database"
)

// A Row sums up the requests that have one name of a group.
type Row struct {
	Name       string `json:"name"`
	Requests   int64  `json:"requests"` // of every end
	Cut        int64  `json:"cut"`
	Failed     int64  `json:"failed"`
	Denied     int64  `json:"denied"`
	Input      int64  `json:"input"` // tokens
	Output     int64  `json:"output"`
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Reasoning  int64  `json:"reasoning"` // of Output
	Estimated  int64  `json:"estimated"` // requests whose tokens the service did not say
	MicroUSD   int64  `json:"micro_usd"`
	Unpriced   int64  `json:"unpriced"`  // requests that used tokens of which no price is known
	MedianMS   int64  `json:"median_ms"` // of those that were answered
	P95MS      int64  `json:"p95_ms"`
}

// The groups of a [Query], as people name them. Days are those of UTC.
var groups = map[string]string{
	"model":   "model",
	"session": "session",
	"persona": "persona",
	"agent":   "agent",
	"day":     "strftime('%Y-%m-%d', time / 1000, 'unixepoch')",
}

// Groups are the names that [Query.By] can have.
func Groups() []string { return []string{"model", "session", "persona", "agent", "day"} }

// A Query says what is summed up.
type Query struct {
	By      string    // one of [Groups]
	Session string    // only of this one; "" is all
	Since   time.Time // only of what was over then or later
}

// Show returns a row for each name, the dearest first, of days the newest. A file that is
// not there has none.
func Show(ctx context.Context, path string, q Query) (rows []Row, err error) {
	by, ok := groups[q.By]
	if !ok {
		return nil, fmt.Errorf("statistics are not kept by %q; there are %v", q.By, Groups())
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	// Not as one that only reads: who does cannot take over the log of a writer that died.
	db, err := database.OpenSQLite(ctx, path, schema)
	if err != nil {
		return nil, fmt.Errorf("reading statistics: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	order := "usd DESC, tokens DESC, name"
	if q.By == "day" {
		order = "name DESC"
	}
	// by and order are constants of this file.
	query := `
WITH picked AS (SELECT *, ` + by + ` AS name FROM inferences WHERE time >= ? AND (? = '' OR session = ?)),
ranked AS (
  SELECT name, took, row_number() OVER (PARTITION BY name ORDER BY took) AS n, count(*) OVER (PARTITION BY name) AS of
  FROM picked WHERE ended = 'answered'),
quantiles AS (
  SELECT name, max(CASE WHEN n = (of + 1) / 2 THEN took END) AS median, max(CASE WHEN n = (of * 95 + 99) / 100 THEN took END) AS p95
  FROM ranked GROUP BY name)
SELECT name, count(*), sum(ended = 'cut'), sum(ended = 'failed'), sum(ended = 'denied'),
  sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(estimated),
  sum(coalesce(micro_usd, 0)) AS usd, sum(micro_usd IS NULL AND ended IN ('answered', 'cut')),
  coalesce(max(median), 0), coalesce(max(p95), 0), sum(input + output + cache_read + cache_write) AS tokens
FROM picked LEFT JOIN quantiles USING (name) GROUP BY name ORDER BY ` + order
	err = db.Read(ctx, func(tx *sql.Tx) error {
		rows, err = scan(tx.QueryContext(ctx, query, q.Since.UnixMilli(), q.Session, q.Session))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading statistics: %w", err)
	}
	return rows, nil
}

func scan(found *sql.Rows, err error) ([]Row, error) {
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []Row
	for found.Next() {
		var r Row
		var tokens int64
		err := found.Scan(&r.Name, &r.Requests, &r.Cut, &r.Failed, &r.Denied, &r.Input, &r.Output, &r.CacheRead, &r.CacheWrite,
			&r.Reasoning, &r.Estimated, &r.MicroUSD, &r.Unpriced, &r.MedianMS, &r.P95MS, &tokens)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// A Selection says what is deleted: what meets every one that is set. The zero Selection is
// everything.
type Selection struct {
	Session string
	Before  time.Time
}

// Delete deletes, so that the file does not hold it any more either, and returns how many
// requests it deleted.
func Delete(ctx context.Context, path string, s Selection) (n int64, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	db, err := database.OpenSQLite(ctx, path, schema)
	if err != nil {
		return 0, fmt.Errorf("deleting statistics: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	before := int64(0)
	if !s.Before.IsZero() {
		before = s.Before.UnixMilli()
	}
	err = db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "PRAGMA secure_delete=ON"); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "DELETE FROM inferences WHERE (? = '' OR session = ?) AND (? = 0 OR time < ?)", s.Session, s.Session, before, before)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("deleting statistics: %w", err)
	}
	return n, nil
}
