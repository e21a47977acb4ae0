// Command ringfence runs AI agents whose every effect is decided by a policy,
// confined, and recorded. It is a door: everything is in package cli.
package main

import (
	"os"

	"ringfence/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
