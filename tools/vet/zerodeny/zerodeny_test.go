package zerodeny_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"ringfence/tools/vet/zerodeny"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), zerodeny.Analyzer, "ringfence/a")
}
