package native

import (
	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
)

// network judges what the kernel says of the network of a box by policy.
func (r *reporter) network(pid int, s sandbox.Spec) error {
	if s.Network != sandbox.NetworkPolicy {
		return nil
	}
	n, err := readback.ReadNetwork(pid)
	if err != nil {
		return err
	}
	seen := sandbox.Seen{Interfaces: n.Interfaces, Routes: n.Routes, Local: n.Local}
	for _, l := range n.Listening {
		seen.Listening = append(seen.Listening, l.String())
	}
	evidence, err := s.Judge(seen)
	if err != nil {
		r.lacks(sandbox.LayerNetwork, err.Error())
		return nil
	}
	r.has(sandbox.LayerNetwork, string(sandbox.NetworkPolicy), evidence)
	return nil
}
