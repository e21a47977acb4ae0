package native

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// A stageError is what a stage reports. It unwraps to the error number of the kernel.
type stageError struct {
	text  string
	errno syscall.Errno
}

func (e *stageError) Error() string { return e.text }

func (e *stageError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// stageFailure makes an error of a frame: that the program is not there, or that its
// box is not.
func stageFailure(payload []byte, s sandbox.Spec) error {
	var f failure
	if err := decode(payload, &f); err != nil {
		return fmt.Errorf("reading what the stage reports: %w", err)
	}
	err := &stageError{f.text, syscall.Errno(f.errno)}
	if f.step == stepExec {
		switch err.errno { //nolint:exhaustive // the others are no fault of the program
		case unix.ENOENT, unix.EACCES, unix.ENOEXEC, unix.ENOTDIR, unix.ELOOP, unix.EISDIR, unix.EPERM, unix.ELIBBAD:
			return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, s.Argv[0], err)
		}
	}
	if (f.step == stepFirstMount || f.step == stepProc) && (err.errno == unix.EPERM || err.errno == unix.EACCES) {
		// They can be made, and nothing can be done in them: AppArmor does that. Or a
		// container hides parts of /proc: then nobody in it mounts another.
		return fmt.Errorf("%w: %w: %w", sandbox.ErrNotBuilt, errNoUserNamespaces, err)
	}
	if overlayFailed(f.step, s.Workspace) {
		return fmt.Errorf("%w: %w", sandbox.ErrNoOverlay, notBuilt(f.step, err))
	}
	return notBuilt(f.step, err)
}
