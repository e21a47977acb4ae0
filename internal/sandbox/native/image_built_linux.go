//go:build boxstage

package native

import _ "embed"

// stageProgram is the command stage (scripts/build.sh).
//
//go:embed image
var stageProgram string
