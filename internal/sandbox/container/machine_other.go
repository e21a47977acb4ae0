//go:build !linux

package container

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"ringfence/internal/sys/proc"
)

// kernelRelease returns nothing: no Linux container runs on this kernel.
func kernelRelease() string { return "" }

func ownProgram() (string, error) { return proc.Executable() }

func startCommands(kind Runtime, _ bool) string {
	switch {
	case runtime.GOOS == "windows":
		return "run ringfence inside WSL 2, with the engine's socket there"
	case kind == RuntimePodman:
		return "podman machine start"
	case runtime.GOOS == "darwin":
		return "open -a Docker"
	}
	return "see the engine's manual"
}

// identify knows the process only by its number, here: [Tier.Sweep] then removes
// what belongs to no process.
func identify() (owner, error) {
	return owner{pid: os.Getpid(), boot: "-", start: "-", space: "-"}, nil
}

func (o owner) lives() bool {
	p, err := os.FindProcess(o.pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH)
}

// machineRoot is asked only where containers are on this kernel.
func machineRoot() bool { return false }

// A fileID is not known here, where no box is local.
type fileID struct{ Dev, Ino uint64 }

func openFile(path string) (*os.File, fileID, os.FileInfo, error) {
	fi, err := os.Lstat(path)
	return nil, fileID{}, fi, err
}
