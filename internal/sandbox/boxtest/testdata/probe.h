// What the files of the probe share. See probe.c.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// An action is one attack. run is given its arguments, of which there are at least
// min, and says what the kernel answered. A raw one is not run in a child: it is
// about the process itself, or never returns.
typedef struct {
	const char *name;
	int min;
	void (*run)(char **a, int n);
	int raw;
} action;

extern const action file_actions[], trick_actions[], process_actions[], kernel_actions[], socket_actions[], load_actions[], harmless_actions[];

// say prints one line: the answer, the action, and a detail without odd bytes.
void say(const char *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

// tell says "ok" or the name of errno, for what a system call returned.
void tell(long result, const char *what);

// tell_fd is tell for what returned a descriptor, which it closes.
void tell_fd(long fd, const char *what);

// show says "ok" with the bytes that were got.
void show(const void *bytes, long n, const char *what);

// number reads an argument; bad ones end the probe.
long number(const char *text);

// octal reads a mode.
long octal(const char *text);

// must ends the probe if something that is no attack went wrong.
long must(long result, const char *what);

// world is what stands outside of boxes. See world.c.
void world(char **a, int n);

// What the C library's headers are too old for. The numbers are the same on every
// architecture (include/uapi/asm-generic/unistd.h).
#define CALL_clone3 435
#define CALL_openat2 437
#define CALL_pidfd_getfd 438
#define CALL_fchmodat2 452
#define CALL_statmount 457
#define CALL_listmount 458
#define CALL_setxattrat 463
#define CALL_open_tree_attr 467
#define CALL_file_setattr 469
