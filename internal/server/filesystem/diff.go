package filesystem

import (
	"fmt"
	"strings"

	"ringfence/internal/act/linediff"
)

// context4 is how many unchanged lines the well-known server shows around a change.
const context4 = 4

// unified returns the change from a to b as a unified diff, in the form that the
// npm package diff gives it (createTwoFilesPatch), which agents know.
func unified(name, a, b string) string {
	return fmt.Sprintf("Index: %s\n%s\n--- %[1]s\toriginal\n+++ %[1]s\tmodified\n", name, strings.Repeat("=", 67)) +
		linediff.Hunks(a, b, context4)
}
