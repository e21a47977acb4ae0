// Command init is the init of the containers of tests: the binary of the tests may
// need libraries that no image has.
package main

import (
	"os"

	"ringfence/internal/sandbox/container"
)

func main() {
	container.Child()
	os.Exit(125)
}
