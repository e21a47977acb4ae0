//go:build !unix

package proc

// NoCores does nothing where there are no cores.
func NoCores() error { return nil }
