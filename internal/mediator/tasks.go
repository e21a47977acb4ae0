package mediator

import "context"

// task is a stub replaced below.
func (f *front) task(ctx context.Context, m message, row method) parcel {
	return parcel{line: fault(m.id(), codeMethod, "ringfence does not offer "+clip(row.name))}
}
