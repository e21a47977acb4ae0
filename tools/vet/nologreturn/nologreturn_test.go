package nologreturn_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"ringfence/tools/vet/nologreturn"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), nologreturn.Analyzer, "a")
}
