package mediator

import (
	"context"
)

// forward answers a request whose method is in the table and is not one of those that
// the era of the client answers itself. m.method must be such a one; [methodOf] says so.
func (f *front) forward(ctx context.Context, m message) parcel {
	row, ok := methodOf(m.method, inBoth)
	if !ok || row.place == placeEra {
		return parcel{line: fault(m.id(), codeMethod, "ringfence does not offer "+clip(m.method))}
	}
	switch m.method {
	case "logging/setLevel":
		return parcel{line: response(m.id(), "result", []byte(`{}`))}
	case "tools/list":
		return f.list(ctx, m)
	case "tools/call":
		return f.call(ctx, m)
	}
	return parcel{line: fault(m.id(), codeMethod, "ringfence does not offer "+clip(m.method))}
}
