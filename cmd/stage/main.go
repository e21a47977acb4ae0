// Command stage is the stage of a box and nothing else. It is built into the program, by
// scripts/build.sh, because it starts in less time than the program itself.
package main

import (
	"fmt"
	"os"

	"ringfence/internal/sandbox/native"
)

func main() {
	native.Child() // does not return in a stage
	fmt.Fprintln(os.Stderr, "this is the stage of a box: it is started by who builds one")
	os.Exit(2)
}
