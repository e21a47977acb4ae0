// Command ringfence runs AI agents whose every effect is decided by a policy,
// confined, and recorded. It is a door: everything is in package cli.
package main

import (
	"os"

	"ringfence/internal/cli"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/native"
)

func main() {
	native.Child()    // does not return in the stage of a box
	container.Child() // nor does this
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
