// The surface of the kernel: calls that no program of a box needs. Their arguments
// do no harm where a call is let through: they are invalid, empty, or about the
// caller itself, and still tell a refusal from an attempt.
#include "probe.h"
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

static char zeros[512];
static char scratch[512];

// A call is a system call with arguments. A nonzero fd says that it returns one.
struct call {
	const char *name;
	long number;
	long a[6];
	int fd;
};

#define P(x) ((long)(x))
#define NONE ((long)-1)
#ifndef SYS_iopl
#define SYS_iopl -1
#define SYS_ioperm -1
#define SYS_modify_ldt -1
#endif

static const struct call calls[] = {
	// Keys.
	{ "keyctl", SYS_keyctl, { 0, -3, 1 }, 0 },
	{ "add_key", SYS_add_key, { P("user"), P("boxtest"), P("x"), 1, -1 }, 0 },
	{ "request_key", SYS_request_key, { P("user"), P("boxtest"), 0, -1 }, 0 },
	// Programs and counters in the kernel, and what serves page faults.
	{ "bpf", SYS_bpf, { 0, P(zeros), 64 }, 1 },
	{ "userfaultfd", SYS_userfaultfd, { O_CLOEXEC | 1 }, 1 },
	// Another kernel, modules, the machine.
	{ "kexec_load", SYS_kexec_load, { 0, 0, 0, 0 }, 0 },
	{ "kexec_file_load", SYS_kexec_file_load, { NONE, NONE, 0, P(""), 0 }, 0 },
	{ "init_module", SYS_init_module, { P(zeros), 0, P("") }, 0 },
	{ "finit_module", SYS_finit_module, { NONE, P(""), 0 }, 0 },
	{ "delete_module", SYS_delete_module, { P("boxtest-none"), O_NONBLOCK }, 0 },
	{ "reboot", SYS_reboot, { 0, 0, 0, 0 }, 0 },
	{ "swapon", SYS_swapon, { P("/boxtest-none"), 0 }, 0 },
	{ "swapoff", SYS_swapoff, { P("/boxtest-none") }, 0 },
	{ "iopl", SYS_iopl, { 3 }, 0 },
	{ "ioperm", SYS_ioperm, { 0x80, 1, 1 }, 0 },
	{ "modify_ldt", SYS_modify_ldt, { 0, P(scratch), 64 }, 0 },
	// Administration.
	{ "quotactl", SYS_quotactl, { 0x800001 << 8, 0, 0, 0 }, 0 },
	{ "acct", SYS_acct, { P("/boxtest-none") }, 0 },
	{ "syslog", SYS_syslog, { 10, 0, 0 }, 0 },
	{ "vhangup", SYS_vhangup, { 0 }, 0 },
	{ "settimeofday", SYS_settimeofday, { 0, 0 }, 0 },
	{ "sethostname", SYS_sethostname, { 0, -1 }, 0 },
	{ "setdomainname", SYS_setdomainname, { 0, -1 }, 0 },
	// Mounts, the old way and the new. Nothing is at the target: where a call gets
	// through, on a machine without a box, it must not change that machine.
	{ "mount", SYS_mount, { P("none"), P("/nosuch"), P("tmpfs"), MS_NOSUID, 0 }, 0 },
	{ "bind", SYS_mount, { P("/"), P("/nosuch"), 0, MS_BIND | MS_REC, 0 }, 0 },
	{ "remount", SYS_mount, { 0, P("/nosuch"), 0, MS_REMOUNT | MS_BIND, 0 }, 0 },
	{ "propagate", SYS_mount, { 0, P("/nosuch"), 0, MS_SHARED | MS_REC, 0 }, 0 },
	{ "fuse", SYS_mount, { P("none"), P("/nosuch"), P("fuse"), 0, P("fd=0,rootmode=40000,user_id=0,group_id=0") }, 0 },
	{ "umount", SYS_umount2, { P("/nosuch"), MNT_DETACH }, 0 },
	{ "chroot", SYS_chroot, { P("/") }, 0 },
	{ "pivot_root", SYS_pivot_root, { P("/"), P("/") }, 0 },
	{ "fsopen", SYS_fsopen, { P("tmpfs"), 0 }, 1 },
	{ "fsconfig", SYS_fsconfig, { NONE, 6, 0, 0, 0 }, 0 },
	{ "fsmount", SYS_fsmount, { NONE, 0, 0 }, 1 },
	{ "fspick", SYS_fspick, { AT_FDCWD, P("/"), 0 }, 1 },
	{ "open_tree", SYS_open_tree, { AT_FDCWD, P("/"), 1 }, 1 },
	{ "open_tree_attr", CALL_open_tree_attr, { AT_FDCWD, P("/"), 1, P(zeros), 32 }, 1 },
	{ "move_mount", SYS_move_mount, { NONE, P(""), AT_FDCWD, P("/nosuch"), 4 }, 0 },
	{ "mount_setattr", SYS_mount_setattr, { AT_FDCWD, P("/nosuch"), 0, P(zeros), 32 }, 0 },
	{ "statmount", CALL_statmount, { P(zeros), P(scratch), 512, 0 }, 0 },
	{ "listmount", CALL_listmount, { P(zeros), P(scratch), 8, 0 }, 0 },
	// Namespaces.
	{ "unshare-user", SYS_unshare, { CLONE_NEWUSER }, 0 },
	{ "unshare-mount", SYS_unshare, { CLONE_NEWNS }, 0 },
	{ "unshare-net", SYS_unshare, { CLONE_NEWNET }, 0 },
	{ "unshare-pid", SYS_unshare, { CLONE_NEWPID }, 0 },
	{ "unshare-ipc", SYS_unshare, { CLONE_NEWIPC }, 0 },
	{ "unshare-uts", SYS_unshare, { CLONE_NEWUTS }, 0 },
	{ "unshare-cgroup", SYS_unshare, { CLONE_NEWCGROUP }, 0 },
	{ "unshare-time", SYS_unshare, { 0x80 }, 0 },
	// What a process is.
	{ "personality-exec", SYS_personality, { 0x0400000 }, 0 },
	{ "personality-linux32", SYS_personality, { 8 }, 0 },
	{ "fanotify_init", SYS_fanotify_init, { 0, 0 }, 1 },
	{ NULL, 0, { 0 }, 0 },
};

static void act_call(char **a, int n)
{
	for (int i = 0; i < n; i++) {
		const struct call *c = calls;
		while (c->name && strcmp(c->name, a[i]))
			c++;
		if (!c->name) {
			say("usage", "no call %s", a[i]);
			_exit(122);
		}
		pid_t pid = must(fork(), "fork");
		if (pid == 0) {
			errno = ENOSYS;
			long r = c->number < 0 ? -1 : syscall(c->number, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
			tell(r, c->name);
			_exit(0);
		}
		int status;
		must(waitpid(pid, &status, 0), "waitpid");
		if (WIFSIGNALED(status)) {
			char name[32];
			snprintf(name, sizeof name, "SIG%s", sigabbrev_np(WTERMSIG(status)));
			say(name, "%s", c->name);
		}
	}
	_exit(0);
}

static void act_perf(char **a, int n)
{
	(void)a, (void)n;
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = 0, .exclude_kernel = 1, .disabled = 1 };
	tell_fd(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open");
}

static void act_uring(char **a, int n)
{
	(void)a, (void)n;
	uint32_t params[64] = { 0 };
	tell_fd(syscall(SYS_io_uring_setup, 4, params), "io_uring_setup");
	errno = 0;
	tell(syscall(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0), "io_uring_enter");
	tell(syscall(SYS_io_uring_register, -1, 0, 0, 0), "io_uring_register");
}

// clone FLAG…: a child in a new namespace, the old way and the new.
static void act_clone(char **a, int n)
{
	const char *names[] = { "user", "mount", "pid", "net", "ipc", "uts", "cgroup" };
	const long flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP };
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
			if (strcmp(names[k], a[i]))
				continue;
			long pid = syscall(SYS_clone, flags[k] | SIGCHLD, 0, 0, 0, 0);
			if (pid == 0)
				_exit(0);
			tell(pid, "clone");
			struct clone_args args = { .flags = flags[k], .exit_signal = SIGCHLD };
			pid = syscall(CALL_clone3, &args, sizeof args);
			if (pid == 0)
				_exit(0);
			tell(pid, "clone3");
		}
}

// setns NAME…: into a namespace of its own, which needs the rights of one who may.
static void act_setns(char **a, int n)
{
	for (int i = 0; i < n; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/self/ns/%s", a[i]);
		int fd = open(path, O_RDONLY);
		tell(fd < 0 ? fd : setns(fd, 0), path);
	}
}

// listener: a filter of its own that answers calls in the place of the box's.
static void act_listener(char **a, int n)
{
	(void)a, (void)n;
	struct sock_filter allow = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };
	struct sock_fprog program = { 1, &allow };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	tell_fd(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), "seccomp");
}

// foreign: calls by the gates of other architectures.
static void act_foreign(char **a, int n)
{
	(void)n;
#ifdef __x86_64__
	long r;
	if (!strcmp(a[0], "i386")) {
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "r8", "r9", "r10", "r11", "memory"); // getpid
		say(r > 0 ? "ok" : "ENOSYS", "getpid %ld", r);
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(359L), "b"(1L), "c"(1L), "d"(0L) : "r8", "r9", "r10", "r11", "memory"); // socket
		say(r >= 0 ? "ok" : "ENOSYS", "socket %ld", r);
		return;
	}
	errno = 0;
	r = syscall(0x40000000 | SYS_getpid);
	tell(r, "getpid");
#else
	say("ENOSYS", "%s: this machine has no such gate", a[0]);
#endif
}

// terminal WHAT: an attack on a terminal that it made itself.
static void act_terminal(char **a, int n)
{
	(void)n;
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0)
		return tell(master, "/dev/ptmx");
	must(grantpt(master), "grantpt");
	must(unlockpt(master), "unlockpt");
	char name[64];
	must(ptsname_r(master, name, sizeof name), "ptsname");
	setsid();
	int slave = must(open(name, O_RDWR), name);
	ioctl(slave, TIOCSCTTY, 0);
	if (!strcmp(a[0], "sti"))
		return tell(ioctl(slave, TIOCSTI, "x"), "TIOCSTI");
	if (!strcmp(a[0], "linux"))
		return tell(ioctl(slave, TIOCLINUX, "\x02"), "TIOCLINUX");
	if (!strcmp(a[0], "discipline")) {
		int which = 21; // N_GSM0710, which loads a module
		tell(ioctl(slave, TIOCSETD, &which), "TIOCSETD");
		which = 15; // N_HCI
		return tell(ioctl(slave, TIOCSETD, &which), "TIOCSETD");
	}
	tell(ioctl(slave, TIOCCONS), "TIOCCONS");
}

// tty: the terminal of whoever started all this.
static void act_tty(char **a, int n)
{
	(void)a, (void)n;
	int fd = open("/dev/tty", O_RDWR);
	if (fd < 0)
		return tell(fd, "/dev/tty");
	tell(write(fd, "boxtest\n", 8), "writing to it");
}

const action kernel_actions[] = {
	{ "call", 1, act_call, 0 }, { "perf", 0, act_perf, 0 }, { "uring", 0, act_uring, 0 },
	{ "clone", 1, act_clone, 0 }, { "setns", 1, act_setns, 0 }, { "listener", 0, act_listener, 0 },
	{ "foreign", 1, act_foreign, 0 }, { "terminal", 1, act_terminal, 0 }, { "tty", 0, act_tty, 0 },
	{ NULL, 0, NULL, 0 },
};
