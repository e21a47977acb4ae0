//go:build !boxstage

package native

// stageProgram is the command stage, where it was built into this program.
const stageProgram = ""
