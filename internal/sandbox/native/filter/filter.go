// Package filter makes the seccomp program of a box: which system calls may be
// made in it, with which arguments, and what happens to the others. What is allowed
// and what is refused stands in tables (table_linux.go, arguments_linux.go), in
// groups with a reason each; [Build] makes a program of them, [Table] shows them,
// [Explain] says why a call was refused.
//
// It installs nothing, and it sees numbers only: a path, an address or a structure
// in memory can be changed by another thread after the filter has looked, so calls
// that say what matters in memory (clone3, openat2, io_uring) do not exist here, and
// what depends on paths is for mounts, Landlock and the supervisor of held names.
//
// Invariants:
//
//	F1  What is in no group is refused. A number that the tables do not know is
//	    answered ENOSYS, as by a kernel without it, so that C libraries use the older
//	    call; a call that they know and do not allow is answered EPERM or as its
//	    group says.
//	F2  A call by another architecture's table (int 0x80, AArch32) or with the x32
//	    bit kills the process.
//	F3  Only the low 32 bits of an argument are compared, because the kernel takes
//	    no more of those that are checked (int, unsigned int, umode_t, and the flags
//	    of clone), or takes the whole and knows no value above 32 bits. Whether a pointer is
//	    NULL is seen in both halves.
//	F4  The zero Options give the narrowest program for a command. Each member that
//	    is set, but Hold, Sockets and Init, only adds. Without Namespaces, Hold hands over
//	    changes of modes and times, which would be refused.
//	F5  The same Options give the same program. Building it touches nothing.
package filter
