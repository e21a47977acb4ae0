//go:build unix

package inplace

import "syscall"

const noFollow = syscall.O_NOFOLLOW
