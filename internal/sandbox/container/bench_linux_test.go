package container

import (
	"testing"

	"ringfence/internal/sandbox"
)

func BenchmarkRunTrue(b *testing.B) {
	for name, tier := range engines(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := sandbox.Run(b.Context(), tier, sandbox.Spec{Argv: []string{"/bin/true"}}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
