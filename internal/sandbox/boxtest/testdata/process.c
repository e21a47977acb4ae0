// What a process can do to others, and to itself.
#include "probe.h"
#include <sys/ptrace.h>
#include <sys/uio.h>

static void act_kill(char **a, int n) { (void)n; tell(kill(number(a[0]), number(a[1])), a[0]); }

// killall SIGNAL: everything that can be reached, but for this process.
static void act_killall(char **a, int n)
{
	(void)n;
	pid_t own = must(fork(), "fork");
	if (own == 0)
		for (;;)
			pause();
	tell(kill(-1, number(a[0])), "kill(-1)");
	kill(own, SIGKILL);
	waitpid(own, NULL, 0);
}

// signals PID: each call that sends one. The signal is SIGTERM, for a victim that
// counts it.
static void act_signals(char **a, int n)
{
	(void)n;
	pid_t pid = number(a[0]);
	siginfo_t info = { .si_signo = SIGTERM, .si_code = SI_QUEUE };
	tell(kill(pid, SIGTERM), "kill");
	tell(syscall(SYS_tkill, pid, SIGTERM), "tkill");
	tell(syscall(SYS_tgkill, pid, pid, SIGTERM), "tgkill");
	tell(syscall(SYS_rt_sigqueueinfo, pid, SIGTERM, &info), "rt_sigqueueinfo");
	// A signal that comes with input: whether it came is for the one who gets it to say.
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && fcntl(pair[0], F_SETOWN, pid) == 0 && fcntl(pair[0], F_SETFL, O_ASYNC) == 0)
		(void)!write(pair[1], "x", 1);
}

static void act_pidfd(char **a, int n)
{
	(void)n;
	int fd = syscall(SYS_pidfd_open, number(a[0]), 0);
	if (fd < 0)
		return tell(fd, "pidfd_open");
	tell(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), "pidfd_send_signal");
	for (int i = 0; i < 4; i++)
		tell(syscall(CALL_pidfd_getfd, fd, i, 0), "pidfd_getfd");
	struct iovec v = { (void *)0x10000, 4096 };
	tell(syscall(SYS_process_madvise, fd, &v, 1, 20, 0), "process_madvise"); // MADV_COLD
	tell(setns(fd, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID), "setns");
}

static void act_ptrace(char **a, int n)
{
	(void)n;
	pid_t pid = number(a[0]);
	tell(ptrace(PTRACE_SEIZE, pid, 0, 0), "PTRACE_SEIZE");
	tell(ptrace(PTRACE_ATTACH, pid, 0, 0), "PTRACE_ATTACH");
}

static void act_traceme(char **a, int n)
{
	(void)a, (void)n;
	tell(ptrace(PTRACE_TRACEME, 0, 0, 0), "PTRACE_TRACEME");
}

// vm PID ADDRESS: reading and writing its memory.
static void act_vm(char **a, int n)
{
	(void)n;
	char buf[64] = { 0 }, path[64];
	pid_t pid = number(a[0]);
	struct iovec here = { buf, sizeof buf }, there = { (void *)number(a[1]), sizeof buf };
	show(buf, syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0), "process_vm_readv");
	strcpy(buf, "boxtest");
	here.iov_len = there.iov_len = 8;
	tell(syscall(SYS_process_vm_writev, pid, &here, 1, &there, 1, 0), "process_vm_writev");
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	int fd = open(path, O_RDWR);
	if (fd < 0)
		return tell(fd, path);
	tell(pwrite(fd, "boxtest", 8, number(a[1])), "writing");
}

// selfvm: the same calls on its own memory.
static void act_selfvm(char **a, int n)
{
	(void)a, (void)n;
	char from[8] = "", to[8] = "";
	struct iovec here = { to, 8 }, there = { from, 8 };
	tell(syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0), "process_vm_readv");
}

// others PID: what changes or tells how another process runs.
static void act_others(char **a, int n)
{
	(void)n;
	pid_t pid = number(a[0]);
	struct rlimit l = { 16, 16 };
	unsigned long cpus = 1, size = sizeof cpus;
	void *head;
	struct sched_param p = { 0 };
	tell(prlimit(pid, RLIMIT_NOFILE, &l, NULL), "prlimit");
	tell(prlimit(pid, RLIMIT_NOFILE, NULL, &l), "prlimit, reading");
	tell(setpriority(PRIO_PROCESS, pid, 19), "setpriority");
	tell(syscall(SYS_sched_setaffinity, pid, size, &cpus), "sched_setaffinity");
	tell(sched_setscheduler(pid, SCHED_IDLE, &p), "sched_setscheduler");
	tell(syscall(SYS_ioprio_set, 1, pid, 3 << 13), "ioprio_set");
	tell(syscall(SYS_get_robust_list, pid, &head, &size), "get_robust_list");
	tell(syscall(SYS_kcmp, pid, getpid(), 1, 0, 0), "kcmp");
	tell(syscall(SYS_move_pages, pid, 0, NULL, NULL, NULL, 0), "move_pages");
}

// lower PID: takes from a process what it needs to go on.
static void act_lower(char **a, int n)
{
	(void)n;
	struct rlimit l;
	must(getrlimit(RLIMIT_NOFILE, &l), "getrlimit");
	l.rlim_cur = 0;
	tell(prlimit(number(a[0]), RLIMIT_NOFILE, &l, NULL), "prlimit");
}

// peek PID: the same where it changes nothing, for the process that runs the suite.
static void act_peek(char **a, int n)
{
	(void)n;
	pid_t pid = number(a[0]);
	struct rlimit l;
	unsigned long cpus[16] = { 0 }, size;
	void *head;
	tell(prlimit(pid, RLIMIT_NOFILE, NULL, &l), "prlimit");
	errno = 0;
	int nice = getpriority(PRIO_PROCESS, pid);
	tell(errno ? -1 : setpriority(PRIO_PROCESS, pid, nice), "setpriority");
	tell(syscall(SYS_sched_getaffinity, pid, sizeof cpus, cpus) < 0 ? -1 : syscall(SYS_sched_setaffinity, pid, sizeof cpus, cpus), "sched_setaffinity");
	tell(syscall(SYS_get_robust_list, pid, &head, &size), "get_robust_list");
	tell(syscall(SYS_kcmp, pid, getpid(), 1, 0, 0), "kcmp");
}

// proc PID: what /proc shows of it.
static void act_proc(char **a, int n)
{
	(void)n;
	const char *files[] = { "environ", "maps", "mem", "cmdline", "status", "stack", "syscall", "io", "mountinfo", "cgroup", "auxv" };
	const char *links[] = { "exe", "cwd", "root", "ns/net", "ns/user", "fd/0", "fd/3" };
	char path[64], buf[256];
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, "/proc/%s/%s", a[0], files[i]);
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			tell(fd, path);
		else
			show(buf, read(fd, buf, sizeof buf), path);
	}
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		snprintf(path, sizeof path, "/proc/%s/%s", a[0], links[i]);
		show(buf, readlink(path, buf, sizeof buf), path);
		tell_fd(open(path, O_RDONLY | O_NONBLOCK), path);
	}
	snprintf(path, sizeof path, "/proc/%s/fd", a[0]);
	tell_fd(open(path, O_RDONLY), path);
	snprintf(path, sizeof path, "/proc/%s/oom_score_adj", a[0]);
	tell_fd(open(path, O_WRONLY), path);
}

// listed PID: whether it is among what /proc lists.
static void act_listed(char **a, int n)
{
	(void)n;
	char path[64];
	snprintf(path, sizeof path, "/proc/%s", a[0]);
	tell(access(path, F_OK), path);
}

// memfdexec: a program that is in no file system, run. The probe itself is copied.
static void act_memfdexec(char **a, int n)
{
	(void)a, (void)n;
	int fd = memfd_create("program", MFD_CLOEXEC);
	if (fd < 0)
		return tell(fd, "memfd_create");
	int self = open("/proc/self/exe", O_RDONLY);
	if (self < 0)
		return tell(self, "/proc/self/exe");
	char buf[65536];
	for (ssize_t r; (r = read(self, buf, sizeof buf)) > 0;)
		must(write(fd, buf, r), "writing");
	char *args[] = { "probe", "ran", NULL }, *none[] = { NULL };
	tell(syscall(SYS_execveat, fd, "", args, none, AT_EMPTY_PATH), "execveat");
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	tell(execve(path, args, none), "execve");
}

static void act_ran(char **a, int n) { (void)a, (void)n; say("ok", "the program ran"); }

// ids: whether anything was gained by how this was started.
static void act_ids(char **a, int n)
{
	(void)a, (void)n;
	uid_t r, e, s;
	gid_t rg, eg, sg;
	getresuid(&r, &e, &s);
	getresgid(&rg, &eg, &sg);
	say(r == e && e == s && rg == eg && eg == sg ? "same" : "raised", "uid %u %u %u, gid %u %u %u", r, e, s, rg, eg, sg);
}

// become: any other user or group than its own, any capability.
static void act_become(char **a, int n)
{
	(void)a, (void)n;
	uid_t other = getuid() ? 0 : 1;
	gid_t groups[] = { 0, 6, 27 };
	tell(setuid(other), "setuid");
	tell(setresuid(-1, other, other), "setresuid");
	tell(setgid(other), "setgid");
	tell(syscall(SYS_setgroups, 3, groups), "setgroups");
	struct { uint32_t version; int pid; } head = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } all[2];
	memset(all, 0xff, sizeof all);
	all[1].effective = all[1].permitted = all[1].inheritable = 0;
	tell(syscall(SYS_capset, &head, all), "capset");
	tell(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0), "PR_CAP_AMBIENT_RAISE");
}

// raise: limits that were set hard.
static void act_raise(char **a, int n)
{
	int which[] = { RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_AS, RLIMIT_CPU, RLIMIT_RTPRIO, RLIMIT_MEMLOCK };
	const char *names[] = { "nofile", "core", "as", "cpu", "rtprio", "memlock" };
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
			struct rlimit l;
			if (strcmp(a[i], names[k]))
				continue;
			must(getrlimit(which[k], &l), "getrlimit");
			if (l.rlim_max == RLIM_INFINITY) {
				say("unlimited", "%s", a[i]);
				continue;
			}
			l.rlim_max++;
			tell(setrlimit(which[k], &l), a[i]);
			tell(prlimit(0, which[k], &l, NULL), a[i]);
		}
}

// realtime: what takes the processors from everybody else.
static void act_realtime(char **a, int n)
{
	(void)a, (void)n;
	struct sched_param p = { 1 };
	tell(sched_setscheduler(0, SCHED_FIFO, &p), "SCHED_FIFO");
	tell(setpriority(PRIO_PROCESS, 0, -20), "setpriority");
	tell(syscall(SYS_ioprio_set, 1, 0, 1 << 13), "ioprio_set");
}

// option N A B: a setting of prctl.
static void act_prctl(char **a, int n)
{
	tell(prctl(number(a[0]), n > 1 ? number(a[1]) : 0, n > 2 ? number(a[2]) : 0, 0, 0), a[0]);
}

const action process_actions[] = {
	{ "kill", 2, act_kill, 0 }, { "killall", 1, act_killall, 1 }, { "signals", 1, act_signals, 0 },
	{ "pidfd", 1, act_pidfd, 0 }, { "ptrace", 1, act_ptrace, 0 }, { "traceme", 0, act_traceme, 0 },
	{ "vm", 2, act_vm, 0 }, { "selfvm", 0, act_selfvm, 0 }, { "others", 1, act_others, 0 }, { "lower", 1, act_lower, 0 },
	{ "peek", 1, act_peek, 0 }, { "proc", 1, act_proc, 0 }, { "listed", 1, act_listed, 0 }, { "memfdexec", 0, act_memfdexec, 0 },
	{ "ran", 0, act_ran, 0 }, { "ids", 0, act_ids, 0 }, { "become", 0, act_become, 0 },
	{ "raise", 1, act_raise, 0 }, { "realtime", 0, act_realtime, 0 }, { "prctl", 1, act_prctl, 0 },
	{ NULL, 0, NULL, 0 },
};
