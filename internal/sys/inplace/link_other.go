//go:build !unix

package inplace

const noFollow = 0
