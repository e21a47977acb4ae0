package sandbox

import "runtime"

// Workspace returns what a box of profile p may do with its workspace where nobody
// says otherwise: a command reads it, agents and servers change it, code has none.
// On macOS a command changes it too, as Seatbelt boxes have always been there.
func (p Profile) Workspace() Mode {
	switch p {
	case ProfileCommand, "":
		if runtime.GOOS == "darwin" {
			return ReadWrite
		}
		return ReadOnly
	case ProfileAgent, ProfileServer:
		return ReadWrite
	default:
		return NoAccess
	}
}
