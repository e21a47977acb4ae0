package display

import "fmt"

// Count is a number of things in words for people: "1 entry", "2 entries".
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}
