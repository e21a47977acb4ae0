// Package waits lets who decides a request tell who asked that the answer will not
// come at once: a person is asked, or a disk. Who asked may have held something up
// until then, such as the reading of what else was asked.
//
// It is no promise: what says nothing may take long all the same.
package waits

import "context"

type key struct{}

// Told returns a context by which told is called when [Tell] is; it must return at
// once, and be able to be called more than once.
func Told(ctx context.Context, told func()) context.Context {
	return context.WithValue(ctx, key{}, told)
}

// Tell says that what ctx is of is about to wait. It does nothing if nobody wants to
// know.
func Tell(ctx context.Context) {
	if told, ok := ctx.Value(key{}).(func()); ok {
		told()
	}
}
