package native

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What a message between a caller and its stage may hold at most.
const (
	maxMessage = 8 << 20 // bytes: 1 MiB of arguments, 3,072 paths and their mounts
	maxItems   = 1 << 15 // members of one list
)

// A coder writes values into bytes, or reads them back, in the order in which they
// are visited: the same method of a type does both, so the two cannot disagree.
// Strings are bytes with a length before them; arguments need not be UTF-8. Numbers
// are varints (encoding/binary). After the first error nothing more happens.
type coder struct {
	b       []byte
	reading bool
	err     error
}

var errShort = errors.New("the message ends too early")

func (c *coder) num(v *int64) {
	if c.err != nil {
		return
	}
	if !c.reading {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		c.err = errShort
		return
	}
	*v, c.b = n, c.b[size:]
}

func (c *coder) integer(v *int) {
	n := int64(*v)
	c.num(&n)
	*v = int(n)
}

func (c *coder) flag(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	c.num(&n)
	if c.reading && n != 0 && n != 1 {
		c.err = fmt.Errorf("%d is neither yes nor no", n)
	}
	*v = n == 1
}

func (c *coder) str(v *string) {
	n := int64(len(*v))
	c.num(&n)
	if c.err != nil {
		return
	}
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	if n < 0 || n > int64(len(c.b)) {
		c.err = errShort
		return
	}
	*v, c.b = string(c.b[:n]), c.b[n:]
}

// list visits each member of v with visit.
func list[T any](c *coder, v *[]T, visit func(*T)) {
	n := int64(len(*v))
	c.num(&n)
	if c.err != nil {
		return
	}
	if c.reading {
		// Every member takes a byte at least, so a short message makes no long list.
		if n < 0 || n > maxItems || n > int64(len(c.b)) {
			c.err = fmt.Errorf("a list of %d members", n)
			return
		}
		*v = make([]T, n)
	}
	for i := range *v {
		visit(&(*v)[i])
	}
}

func (c *coder) strs(v *[]string) { list(c, v, c.str) }

// A message is a value that a coder can visit.
type message interface{ visit(*coder) }

func encode(m message) ([]byte, error) {
	c := coder{}
	m.visit(&c)
	if c.err == nil && len(c.b) > maxMessage {
		c.err = fmt.Errorf("a message of %d bytes, at most %d", len(c.b), maxMessage)
	}
	return c.b, c.err
}

// decode reads m from b, which must hold nothing else.
func decode(b []byte, m message) error {
	c := coder{b: b, reading: true}
	m.visit(&c)
	if c.err == nil && len(c.b) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.b))
	}
	return c.err
}
