//go:build !unix

package database

const noFollow = 0

// syncDir does nothing: these systems cannot flush a directory.
func syncDir(string) error { return nil }
