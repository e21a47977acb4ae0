package review

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"ringfence/internal/sys/subtree"
)

// equal compares the open file of the upper tree with name in low. It returns an
// error that says why the file in low cannot be read.
func equal(f *os.File, low *subtree.Dir, name string, c Change) (bool, error) {
	if c.up.Size != c.low.Size || c.up.Size > maxCompare {
		return false, nil
	}
	g, _, err := low.OpenFile(name)
	if err != nil {
		return false, err
	}
	defer g.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, aerr := io.ReadFull(f, a)
		m, berr := io.ReadFull(g, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		if ended(aerr) || ended(berr) {
			return ended(aerr) && ended(berr), nil
		}
		if err := errors.Join(aerr, berr); err != nil {
			return false, err
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// coarse is the resolution of time stamps on file systems that keep no part of a
// second: FAT keeps every other.
const coarse = 2 * time.Second

// conflict says what was changed outside, or "". A file that was moved here, or whose
// mode or owner was changed, was changed too.
func (r *Review) conflict(low subtree.Info) string {
	began := r.Began
	if low.Changed.Nanosecond() == 0 {
		began = began.Truncate(coarse)
	}
	if low.Changed.Before(began) {
		return ""
	}
	return changedAt(low)
}

func changedAt(low subtree.Info) string {
	return "it was changed outside at " + low.Changed.Local().Format(time.DateTime)
}

// reason is the part of err that says what the system answered.
func reason(err error) string {
	switch {
	case errors.Is(err, syscall.EXDEV):
		return "another file system is mounted there"
	case errors.Is(err, fs.ErrPermission):
		return "it cannot be read: permission denied"
	}
	return "it cannot be read: " + cause(err)
}

// cause is what the system answered, without the names that only we know.
func cause(err error) string {
	if errors.Is(err, syscall.EXDEV) {
		return "another file system is mounted there"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return err.Error()
}
