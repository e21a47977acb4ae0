// Package hold keeps names within a writable tree from being made, changed,
// replaced, moved or removed: those that the host executes later, and those that
// a Spec names. [Rules] says which; [Serve] is the supervisor that does, for the
// processes of a box, what the rules allow (docs/decisions/0005).
//
// It installs no filter, mounts nothing and starts nothing. It does not decide
// what a box may read, or what it may write outside the writable trees.
//
// Invariants:
//
//	H1  There are two keys. By a Landlock domain of its own the program may change
//	    nothing in the writable trees; what the rules allow there, the supervisor
//	    performs, on a handle of the directory whose real path it judged.
//	H2  A call is continued only where Landlock would stop what must not be: it
//	    leads nowhere into these trees, or changes nothing. Modes, which Landlock
//	    does not know, are never left to the kernel.
//	H3  What a path was judged to be it still is when the call is performed: who
//	    renames a directory, or may make a git directory of one, is alone.
//	H4  What is read of a caller counts only if it waited all the while.
//	H5  An error is a refusal. A supervisor that fails leaves callers waiting.
//	H6  Where nothing is held, a call says and leaves what it would have by itself,
//	    but for what is listed below.
//
// Lock order: server.order before births.mu and denials.mu.
//
// # What the filter must notify
//
// The filter is installed with SECCOMP_FILTER_FLAG_NEW_LISTENER and
// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19; without it a signal makes
// the kernel issue a call again that was already done). It notifies, on every
// architecture that has the call:
//
//	open, openat      if the flags have a bit of 0x400243: O_WRONLY|O_RDWR|O_CREAT|O_TRUNC,
//	                  and O_TMPFILE without O_DIRECTORY; the same on amd64 and arm64
//	creat mkdir mkdirat mknod mknodat link linkat symlink symlinkat
//	rename renameat renameat2 unlink unlinkat rmdir truncate
//	chmod fchmod fchmodat fchmodat2
//	utimensat         where nothing but Landlock holds the program
//	umask             which is continued: from then on umasks are looked up
//	connect bind                           always, where the box can make Unix sockets
//
// And it answers by itself:
//
//	openat2                                      ENOSYS: its flags are in memory
//	setxattr … removexattr, their l, f and at    EOPNOTSUPP: an access list changes a mode
//	file_setattr                                 EOPNOTSUPP
//	ioctl of btrfs (type 0x94) but for FICLONE, FICLONERANGE and FIDEDUPERANGE, of
//	ocfs2 (0x6f) and bcachefs (0xbc)             ENOTTY: snapshots make names
//	chroot mount setns unshare ptrace io_uring_setup open_by_handle_at …   refused
//
// # What differs from the call itself
//
// A default access list of a directory does not replace the umask. No terminal
// becomes the caller's controlling one by being opened in the trees. A path that
// goes on behind /proc/self/root, leads to another process, or comes to /proc/self/cwd
// or /proc/self/fd/N in another way than by beginning so, is no way to write (EACCES).
// Where a directory has more than 50,000 files beneath it, or ones that cannot be looked
// at, it cannot be renamed (EXDEV). A directory whose real path is longer than PATH_MAX
// is no place to do anything (ENAMETOOLONG). Opening a pipe waits by looking again
// every 20 ms. Truncating a file under a lease fails (EAGAIN). An open that has no
// descriptor left (EMFILE) has made or truncated the file already.
package hold

// Options are what [Serve] goes by. The zero Options hold nothing.
type Options struct {
	Rules Rules
	// Unheld says that only connect and bind are handed over: what is writable, the
	// program changes by itself.
	Unheld bool
	// Within says that nothing but Landlock holds the program, which knows neither modes
	// nor times: those of files elsewhere are not changed for it.
	Within bool
	// Shared says that the box has the network of the machine: abstract sockets would
	// be the machine's, and are connected to by nobody.
	Shared bool
	// Private are mount points of file systems in memory that nobody but the box has:
	// the sockets there are its own. Reachable are sockets outside that it may connect
	// to. Like the paths of Rules, both are without symbolic links.
	Private, Reachable []string
	// OnDenial is told of each refusal that differs from those before, and again
	// when it has come twice as often. It may be called at the same time by several
	// goroutines, and must not block: the call that was refused waits for it.
	OnDenial func(Denial)
	// OnBirth is told the path of each repository that comes into being in the box,
	// and its new path when it is moved: what is beneath is not held. Like OnDenial.
	OnBirth func(path string)
}
