package api

import (
	"syscall"
	"testing"
)

// switches counts how often threads of this process have waited, or were made to.
func switches(b *testing.B) (n int64) {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Nvcsw + u.Nivcsw
}
