// Command idle is what the program is measured beside: a Go program that does
// nothing. Without arguments it ends; with one it says so and waits for the
// end of its input.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}
