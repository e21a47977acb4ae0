//go:build !linux

package mounts

func table() (string, error) { return "", nil }
