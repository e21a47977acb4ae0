package mitm

import (
	"bytes"
	"errors"
	"io"
)

// watch returns body as it is, as far as the filter has let what it holds pass. What a
// filter would change is refused: a request goes out as it was written, or not at all.
func watch(body io.Reader, encoding string, filter Filter) (io.Reader, error) {
	w := &watched{filter: filter, piece: make([]byte, copyPiece)}
	source, err := unpack(&consumed{body: body, into: &w.packed}, encoding)
	if err != nil {
		return nil, err
	}
	w.source = source
	_, w.isPacked = source.(*unpacked)
	return w, nil
}

type watched struct {
	filter   Filter
	source   io.Reader // what is looked at
	isPacked bool
	piece    []byte
	packed   bytes.Buffer // read from the body, not passed yet
	held     []byte       // looked at, not let pass yet
	passing  int          // of packed, let pass
	err      error
}

func (w *watched) Read(p []byte) (int, error) {
	for w.passing == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.step()
	}
	n, _ := w.packed.Read(p[:min(len(p), w.passing)])
	w.passing -= n
	return n, nil
}

// step looks at one more piece.
func (w *watched) step() {
	n, err := w.source.Read(w.piece)
	w.held = append(w.held, w.piece[:n]...)
	if n > 0 {
		out, perr := w.filter.Push(w.piece[:n])
		w.let(out, perr)
	}
	if w.err == nil && errors.Is(err, io.EOF) {
		out, perr := w.filter.End()
		w.let(out, perr)
		if w.err == nil {
			w.passing, w.err = w.packed.Len(), io.EOF
		}
		return
	}
	if w.err == nil && err != nil {
		w.err = err
	}
}

// let has what the filter returned pass.
func (w *watched) let(out []byte, err error) {
	switch {
	case err != nil:
		w.err = err
	case !bytes.HasPrefix(w.held, out):
		w.err = refusal("content", "the body of a request holds what must not go out")
	default:
		w.held = append(w.held[:0], w.held[len(out):]...)
		w.passing = w.packed.Len()
		if !w.isPacked {
			w.passing -= len(w.held)
		}
	}
}

// consumed copies what is read of body. It gives single bytes, so that a decoder takes
// no more than what it returns is made of.
type consumed struct {
	body io.Reader
	into *bytes.Buffer
	buf  []byte
	next int
	err  error
}

func (c *consumed) Read(p []byte) (int, error) {
	if c.next == len(c.buf) && len(p) >= copyPiece {
		n, err := c.body.Read(p)
		c.into.Write(p[:n])
		return n, err
	}
	if err := c.more(); err != nil {
		return 0, err
	}
	n := copy(p, c.buf[c.next:])
	c.into.Write(c.buf[c.next : c.next+n])
	c.next += n
	return n, nil
}

// ReadByte returns one byte of the body.
func (c *consumed) ReadByte() (byte, error) {
	if err := c.more(); err != nil {
		return 0, err
	}
	b := c.buf[c.next]
	c.next++
	return b, c.into.WriteByte(b)
}

func (c *consumed) more() error {
	if c.next < len(c.buf) {
		return nil
	}
	if c.err != nil {
		return c.err
	}
	if cap(c.buf) == 0 {
		c.buf = make([]byte, copyPiece)
	}
	n, err := c.body.Read(c.buf[:cap(c.buf)])
	c.buf, c.next, c.err = c.buf[:n], 0, err
	if n == 0 && err != nil {
		return err
	}
	if n == 0 {
		return io.ErrNoProgress
	}
	return nil
}
