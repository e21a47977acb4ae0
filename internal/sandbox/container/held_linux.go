package container

import (
	"fmt"
	"strings"

	"ringfence/internal/sandbox"
)

// names judges what holds names in live trees, which the stage has tried (K5).
func (j *judge) names() {
	switch {
	case j.p.held == nil:
		return
	case j.held == nil:
		j.fail(sandbox.LayerHeld, "the container does not say that names are held")
		return
	}
	j.enforced(fmt.Sprintf("%s=abi%d", sandbox.LayerLandlock, j.held.ABI), fmt.Sprintf(
		"%s could be opened before, and not after; handled: %s", initPath, strings.Join(j.held.Handled, ", ")))
	evidence := fmt.Sprintf("in %q the program could make nothing by itself when that was tried, and could by way of the init, "+
		"to which the filter hands calls that make and change names", j.p.held.Rules.Writable)
	if ownProfile(j.e, j.p) {
		evidence += "; the engine's profile of system calls is replaced by one of ours, because its own keeps the init from looking into the program"
	}
	j.enforced(sandbox.LayerHeld, evidence+j.p.held.followed())
}
