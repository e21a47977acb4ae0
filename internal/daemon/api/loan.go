package api

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"ringfence/internal/act"
)

// Secrets on loan are on this socket and nowhere else: the JSON form of a ticket, which
// is what is recorded and shown, has none.

// errLoan does not say which text it is about.
var errLoan = errors.New("a secret that is to be lent is not valid UTF-8")

// appendLoans appends `"lend":[…],`, or nothing where nothing is lent.
func appendLoans(b []byte, loans []act.Loan) ([]byte, error) {
	if len(loans) == 0 {
		return b, nil
	}
	b = append(b, `"lend":[`...)
	for _, l := range loans {
		if !utf8.ValidString(l.Name) || !utf8.ValidString(l.Sentinel) || !utf8.ValidString(l.Value) {
			return b, errLoan
		}
		b = append(appendString(append(b, `{"name":`...), l.Name), ',')
		b = append(appendString(append(b, `"sentinel":`...), l.Sentinel), ',')
		b = append(appendString(append(b, `"value":`...), l.Value), '}', ',')
	}
	return append(closeList(b, ']'), ','), nil
}

func (c *cursor) loans() (list []act.Loan, err error) {
	err = c.array(func() error {
		var l act.Loan
		err := c.object(func(name string) (err error) {
			switch name {
			case "name":
				l.Name, err = c.str()
			case "sentinel":
				l.Sentinel, err = c.str()
			case "value":
				l.Value, err = c.str()
			default:
				err = fmt.Errorf("%w: unknown member %q of a loan", errHeader, name)
			}
			return err
		})
		list = append(list, l)
		return err
	})
	return list, err
}
