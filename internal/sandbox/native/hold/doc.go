// Package hold keeps names within a writable tree from being made, changed,
// replaced, moved or removed: those that the host executes later, and those that
// a Spec names. [Rules] says which; [Serve] is the supervisor that does, for the
// processes of a box, what the rules allow.
//
// It installs no filter, mounts nothing and starts nothing. It does not decide
// what a box may read, or what it may write outside the writable trees.
//
// # Two keys
//
// The kernel refuses the program, by the Landlock domain of its own, every change
// in the writable trees. What the rules allow there, the supervisor does in its
// place, on a handle of the directory that it checked. A call that leads nowhere
// into these trees is continued; whatever the program makes of its arguments
// meanwhile, Landlock refuses what would change them.
//
// # What the filter must notify
//
// The filter is installed with SECCOMP_FILTER_FLAG_NEW_LISTENER and
// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19; without it a signal makes
// the kernel issue a call again that was already done). It notifies, on every
// architecture that has the call:
//
//	open                                   if argument 1 has a bit of 0x400243
//	openat                                 if argument 2 has a bit of 0x400243
//	creat                                  always
//	mkdir mkdirat mknod mknodat            always
//	link linkat symlink symlinkat          always
//	rename renameat renameat2              always
//	unlink unlinkat rmdir                  always
//	truncate                               always
//	chmod fchmod fchmodat fchmodat2        always
//	umask                                  always (it is continued; its argument is remembered)
//
// 0x400243 is O_WRONLY|O_RDWR|O_CREAT|O_TRUNC and the bit of O_TMPFILE that is not
// O_DIRECTORY, the same on amd64 and arm64.
//
// And it answers by itself:
//
//	openat2                                ENOSYS: its flags are in memory; callers fall back to openat
//	setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr
//	fremovexattr removexattrat             EOPNOTSUPP: an access list changes a mode
//	file_setattr                           EOPNOTSUPP
//	ioctl with type 0x94 (btrfs), but for FICLONE 0x40049409,
//	FICLONERANGE 0x4020940d and FIDEDUPERANGE 0xc0189436
//	                                       ENOTTY: a snapshot makes a name without any of the calls above
//	ioctl with type 0x6f (ocfs2) or 0xbc (bcachefs)   ENOTTY: the same
//	chroot pivot_root mount setns unshare ptrace process_vm_writev
//	io_uring_* open_by_handle_at           refused, as everywhere
package hold

// Options are what [Serve] goes by. The zero Options hold nothing.
type Options struct {
	Rules Rules
	// OnDenial is told of each refusal that differs from those before, and again
	// when it has come twice as often. It may be called at the same time by several
	// goroutines, and must not block: the call that was refused waits for it.
	OnDenial func(Denial)
	// OnBirth is told the path of each repository that comes into being in the box,
	// and its new path when it is moved: what is beneath is not held. Like OnDenial.
	OnBirth func(path string)
}
