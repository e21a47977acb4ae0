package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

const (
	batchSize  = 8 << 10   // bytes that a batch adds to the log beside its content, about: two pages
	watchEvery = 256 << 10 // bytes that batches may add before the log is looked at
)

// A Stmt is a statement for [Batch.Run]. It is compiled on its first use and
// then kept; the driver compiles whatever else it is given each time.
type Stmt struct{ query string }

var (
	begin    = &Stmt{"BEGIN IMMEDIATE"}
	commit   = &Stmt{"COMMIT"}
	rollback = &Stmt{"ROLLBACK"}
)

// Prepare returns a statement for batches. query is one statement that returns
// no rows, with ? for its parameters. An error in it is one of Run.
func (d *DB) Prepare(query string) *Stmt { return &Stmt{query} }

// A connection is one of the driver, and the statements compiled on it. It is a
// connector's own, so that they end with it: SQLite does not close a file as
// long as there are any.
type connection struct {
	driverConn
	compiled map[*Stmt]driver.StmtExecContext
	batch    Batch // the one there is, so that its memory is used again
}

// driverConn is what database/sql may ask of a connection of this driver.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(driverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a %T is not a connection of this driver", opened), opened.Close())
	}
	return &connection{driverConn: conn, compiled: map[*Stmt]driver.StmtExecContext{}}, nil
}

// Close implements driver.Conn.
func (c *connection) Close() error {
	var errs []error
	for _, s := range c.compiled {
		if s, ok := s.(driver.Stmt); ok {
			errs = append(errs, s.Close())
		}
	}
	clear(c.compiled)
	return errors.Join(append(errs, c.driverConn.Close())...)
}

func (c *connection) compile(s *Stmt) (driver.StmtExecContext, error) {
	if compiled, ok := c.compiled[s]; ok {
		return compiled, nil
	}
	opened, err := c.PrepareContext(context.Background(), s.query)
	if err != nil {
		return nil, fmt.Errorf("preparing %.40q: %w", s.query, err)
	}
	compiled, ok := opened.(driver.StmtExecContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("preparing %.40q: a %T cannot be run", s.query, opened), opened.Close())
	}
	c.compiled[s] = compiled
	return compiled, nil
}

// A Batch is a transaction that [DB.Batch] has begun. It is of use only until
// the function that got it returns.
type Batch struct {
	on   *connection
	args []driver.NamedValue // room for those of one Run
	size int64               // bytes that have been added to the log, about
}

// Run runs a statement. Arguments are int64, string, []byte or nil, one for each
// parameter, and are not kept.
func (b *Batch) Run(s *Stmt, args ...any) error {
	compiled, err := b.on.compile(s)
	if err != nil {
		return err
	}
	b.args = b.args[:0]
	for i, a := range args {
		switch a := a.(type) {
		case []byte:
			b.size += int64(len(a))
		case string:
			b.size += int64(len(a))
		}
		b.args = append(b.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	_, err = compiled.ExecContext(context.Background(), b.args)
	clear(b.args)
	return err
}

// Batch is [DB.Write] for a transaction that only runs prepared statements which
// return no rows. It goes around database/sql, which would cost as much as the
// statement. ctx bounds the wait for other writers; a batch that has begun is
// not interrupted.
func (d *DB) Batch(ctx context.Context, f func(*Batch) error) error {
	if err := d.prepareToWrite(ctx); err != nil {
		return err
	}
	c, err := d.write.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	err = c.Raw(func(raw any) error {
		conn, ok := raw.(*connection)
		if !ok {
			return fmt.Errorf("%w: a %T is not a connection for batches", ErrUnwritable, raw)
		}
		b := &conn.batch
		b.on = conn
		if err := b.transact(f); err != nil {
			return err
		}
		if b.size += batchSize; b.size > watchEvery {
			b.size = 0
			d.watchLog()
		}
		return nil
	})
	if e := c.Close(); e != nil && err != nil { // what was committed stays so, whatever Close says
		err = errors.Join(err, e)
	}
	return err
}

// transact runs f between BEGIN and COMMIT.
func (b *Batch) transact(f func(*Batch) error) error {
	if err := b.Run(begin); err != nil {
		return fmt.Errorf("%w: beginning: %w", ErrUnwritable, err)
	}
	err := f(b)
	if err == nil {
		if err = b.Run(commit); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: committing: %w", ErrUnwritable, err)
	}
	// After some errors SQLite has rolled back by itself, and says so with
	// another. A transaction that is still there keeps the next from beginning.
	_ = b.Run(rollback)
	return err
}
