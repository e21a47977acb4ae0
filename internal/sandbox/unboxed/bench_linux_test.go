package unboxed

import (
	"os/exec"
	"testing"

	"ringfence/internal/sandbox"
)

func BenchmarkRunTrue(b *testing.B) {
	s := sandbox.Spec{Argv: []string{"/bin/true"}}
	for b.Loop() {
		if _, err := sandbox.Run(b.Context(), Tier{}, s, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What starting a process costs by itself.
func BenchmarkBareTrue(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
