// Command vet runs the analyzers that only this tree needs, over the packages
// named on its command line.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"ringfence/tools/vet/nologreturn"
	"ringfence/tools/vet/zerodeny"
)

func main() {
	multichecker.Main(nologreturn.Analyzer, zerodeny.Analyzer)
}
