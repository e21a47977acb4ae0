//go:build !linux

package paths

// noKeys passes over nothing: all that is above p is examined.
func noKeys(p string) string { return p }
