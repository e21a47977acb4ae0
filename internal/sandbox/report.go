package sandbox

import (
	"slices"
	"strings"
)

// TierNone is the name of the tier that confines nothing.
const TierNone = "none"

// The names of layers, as they stand in records. A detail may follow after "=":
// "landlock=abi6", "cgroup=memory,pids". A tier adds names for what no other has.
const (
	LayerUserNamespace    = "user-namespace"
	LayerMountNamespace   = "mount-namespace"
	LayerPIDNamespace     = "pid-namespace"
	LayerNetworkNamespace = "network-namespace"
	LayerIPCNamespace     = "ipc-namespace"
	LayerUTSNamespace     = "uts-namespace"
	LayerCgroupNamespace  = "cgroup-namespace"
	LayerLandlock         = "landlock"
	LayerSeccomp          = "seccomp"
	LayerNoNewPrivileges  = "no-new-privileges"
	LayerNoCapabilities   = "no-capabilities"
	LayerRlimits          = "rlimits"
	LayerCgroup           = "cgroup"
	LayerUnprivileged     = "unprivileged-user"
	LayerContainer        = "container"
	LayerVirtualMachine   = "virtual-machine"
	LayerSeatbelt         = "seatbelt"
	LayerJobObject        = "job-object"
	LayerNetwork          = "network"    // what of it there is: "network=policy"
	LayerWorkspace        = "workspace"  // it is not the live tree: "workspace=overlay", "workspace=copy"
	LayerHome             = "home"       // it is one of the box's own: "home=own"
	LayerHeld             = "held-names" // files that the host runs later are kept from the program
)

// A Report says which layers of confinement are in force. Every record carries
// one. The zero Report says that nothing is.
type Report struct {
	Tier     string   `json:"tier,omitempty"`     // [Tier.Name]; "" is "none"
	Enforced []string `json:"enforced,omitempty"` // read back from the kernel, or proved by trying
	Inferred []string `json:"inferred,omitempty"` // follows from what was set, could not be read back
	Missing  []string `json:"missing,omitempty"`  // the Spec needs it and it is not in force
	// Evidence says, by layer, what the kernel answered: "Seccomp: 2, 1 filter in
	// /proc/<pid>/status", "inode 4026532250, ours is 4026531836". For a missing
	// layer it says why, and how to get it.
	Evidence map[string]string `json:"evidence,omitempty"`
	// Image names what the box's file system was made from, by digest, where a
	// tier has images.
	Image string `json:"image,omitempty"`
	// Permissive says that an operator chose to go on although the box could not
	// be built as its Spec says.
	Permissive bool `json:"permissive,omitempty"`
}

// Confines reports whether anything at all is enforced.
func (r Report) Confines() bool { return len(r.Enforced) > 0 || len(r.Inferred) > 0 }

// Complete reports whether the box confines and lacks nothing that its Spec needs.
func (r Report) Complete() bool {
	return r.Confines() && len(r.Missing) == 0 && !r.Permissive
}

// Has reports whether layer is enforced, with whatever detail. Inferred layers do
// not count.
func (r Report) Has(layer string) bool {
	return slices.ContainsFunc(r.Enforced, func(l string) bool {
		name, _, _ := strings.Cut(l, "=")
		return name == layer
	})
}

// String returns the report as it stands in records and on screens: "box: none",
// or "box: native: landlock=abi6 seccomp; inferred: cgroup; missing:
// network-namespace". It never names a layer that is not in one of the lists.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString("box: ")
	if !r.Confines() {
		b.WriteString(TierNone)
	} else {
		b.WriteString(r.Tier)
		if len(r.Enforced) > 0 {
			b.WriteString(": " + strings.Join(r.Enforced, " "))
		}
		if len(r.Inferred) > 0 {
			b.WriteString("; inferred: " + strings.Join(r.Inferred, " "))
		}
	}
	if len(r.Missing) > 0 {
		b.WriteString("; missing: " + strings.Join(r.Missing, " "))
	}
	if r.Permissive {
		b.WriteString("; permissive")
	}
	return b.String()
}
