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

// Wide reports whether boxes of profile p get the system calls, and the sockets within
// the box, that agents, servers and builds need; others get what one command does.
func (p Profile) Wide() bool { return p == ProfileAgent || p == ProfileServer }

// Sockets reports whether the program of s can make Unix and Internet sockets. They
// lead to the box itself, and to what s names as its network.
func (s Spec) Sockets() bool { return s.Profile.Wide() || s.Network != NetworkNone }
