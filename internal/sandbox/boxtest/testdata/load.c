// What is true of the box, and what uses it up.
#include "probe.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <time.h>

extern char **environ;

// fact NAME: what the kernel says of this process, under the name that
// /proc/self/status has for it; by system calls, for not every box has a /proc.
static void act_fact(char **a, int n)
{
	(void)n;
	struct { uint32_t version; int pid; } head = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } c[2] = { { 0 } };
	char text[32];
	long value = -1;
	unsigned long set = 0;
	if (!strcmp(a[0], "Seccomp"))
		value = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
	else if (!strcmp(a[0], "NoNewPrivs"))
		value = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	if (!strncmp(a[0], "Cap", 3)) {
		const char *which = a[0] + 3;
		value = syscall(SYS_capget, &head, c);
		for (int i = 0; i < 2; i++)
			set |= (unsigned long)(!strcmp(which, "Eff") ? c[i].effective : !strcmp(which, "Prm") ? c[i].permitted : c[i].inheritable) << 32 * i;
		for (int i = 0; i < 64 && !strcmp(which, "Amb"); i++)
			set = (i ? set : 0) | (unsigned long)(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1) << i;
		for (int i = 0; i < 64 && !strcmp(which, "Bnd"); i++)
			set = (i ? set : 0) | (unsigned long)(prctl(PR_CAPBSET_READ, i) == 1) << i;
		snprintf(text, sizeof text, "%016lx", set);
	} else {
		snprintf(text, sizeof text, "%ld", value);
	}
	if (value < 0)
		return tell(value, a[0]);
	say(text, "%s", a[0]);
}

// ns NAME INODE: whether the namespace is another than the one of that inode.
static void act_ns(char **a, int n)
{
	(void)n;
	char path[64], is[64];
	snprintf(path, sizeof path, "/proc/self/ns/%s", a[0]);
	ssize_t len = readlink(path, is, sizeof is - 1);
	if (len < 0)
		return tell(len, path);
	is[len] = 0;
	say(strstr(is, a[1]) ? "host" : "own", "%s, outside %s", is, a[1]);
}

// outside: who this is outside of its user namespace.
static void act_outside(char **a, int n)
{
	(void)a, (void)n;
	unsigned long inside, outside, count;
	FILE *f = fopen("/proc/self/uid_map", "r");
	if (!f)
		return tell(-1, "/proc/self/uid_map");
	while (fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3)
		if (getuid() >= inside && getuid() - inside < count)
			return say(outside + getuid() - inside ? "user" : "root", "%lu", outside + getuid() - inside);
	say("nobody", "%u is not mapped", getuid());
}

static void act_rlimit(char **a, int n)
{
	(void)n;
	const char *names[] = { "nofile", "core", "as", "cpu", "nproc", "sigpending" };
	const int which[] = { RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_AS, RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_SIGPENDING };
	for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
		struct rlimit l;
		char text[64];
		if (strcmp(names[i], a[0]))
			continue;
		must(getrlimit(which[i], &l), "getrlimit");
		if (l.rlim_max == RLIM_INFINITY)
			strcpy(text, "unlimited");
		else
			snprintf(text, sizeof text, "%s%lu", l.rlim_cur == l.rlim_max ? "" : "soft:", (unsigned long)l.rlim_max);
		say(text, "%s", a[0]);
	}
}

static void act_fds(char **a, int n)
{
	(void)a, (void)n;
	int more = 0;
	for (int fd = 3; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			char path[64], to[256] = "";
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			(void)!readlink(path, to, sizeof to - 1);
			say("open", "%d: %s", fd, to);
			more++;
		}
	if (!more)
		say("none", "beyond 0, 1 and 2");
}

// env: each variable is an answer.
static void act_env(char **a, int n)
{
	(void)a, (void)n;
	for (char **e = environ; *e; e++) {
		char name[128];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
		say(name, "%s", strchr(*e, '='));
	}
}

// session: whether it has a session of its own, and the terminal it does not have.
static void act_session(char **a, int n)
{
	(void)a, (void)n;
	say(getsid(0) == getppid() || getsid(0) == getpid() ? "own" : "others", "session %d", getsid(0));
}

// forkbomb MOST: processes until there are no more to be had.
static void act_forkbomb(char **a, int n)
{
	(void)n;
	long most = number(a[0]), i;
	pid_t *pids = calloc(most, sizeof *pids);
	for (i = 0; i < most; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			break;
		if (pids[i] == 0)
			for (;;)
				pause();
	}
	int error = errno;
	for (long k = 0; k < i; k++)
		kill(pids[k], SIGKILL), waitpid(pids[k], NULL, 0);
	errno = error;
	char text[64];
	snprintf(text, sizeof text, "after %ld", i);
	tell(i < most ? -1 : 0, text);
}

static void *rest(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static void act_threadbomb(char **a, int n)
{
	(void)n;
	long most = number(a[0]), i;
	pthread_attr_t attr;
	pthread_t t;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (i = 0; i < most; i++)
		if ((errno = pthread_create(&t, &attr, rest, NULL)))
			break;
	char text[64];
	snprintf(text, sizeof text, "after %ld", i);
	tell(i < most ? -1 : 0, text);
	_exit(0);
}

// membomb MIB: memory that is really used.
static void act_membomb(char **a, int n)
{
	(void)n;
	char text[64];
	for (long i = 0, most = number(a[0]); i < most; i += 8) {
		char *m = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		snprintf(text, sizeof text, "after %ld MiB", i);
		if (m == MAP_FAILED)
			return tell(-1, text);
		for (long k = 0; k < 8 << 20; k += 4096)
			m[k] = 1;
	}
	say("ok", "%s", text);
}

static void act_reserve(char **a, int n)
{
	(void)n;
	void *m = mmap(NULL, (size_t)number(a[0]) << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	tell(m == MAP_FAILED ? -1 : 0, "mmap");
}

static double clock_of(clockid_t which)
{
	struct timespec t;
	clock_gettime(which, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// spin SECONDS of processor time.
static void act_spin(char **a, int n)
{
	(void)n;
	double most = number(a[0]);
	while (clock_of(CLOCK_PROCESS_CPUTIME_ID) < most)
		;
	say("ok", "%s seconds of processor time", a[0]);
}

static void *spin(void *arg)
{
	for (double end = *(double *)arg; clock_of(CLOCK_MONOTONIC) < end;)
		;
	return NULL;
}

// quota: how many processors two threads get.
static void act_quota(char **a, int n)
{
	(void)a, (void)n;
	double from = clock_of(CLOCK_MONOTONIC), end = from + 1;
	pthread_t t;
	if ((errno = pthread_create(&t, NULL, spin, &end)))
		must(-1, "thread");
	spin(&end);
	pthread_join(t, NULL);
	double got = clock_of(CLOCK_PROCESS_CPUTIME_ID) / (clock_of(CLOCK_MONOTONIC) - from);
	say(got < 1.3 ? "one" : "more", "%.2f processors", got);
}

// pour MIB: output without end.
static void act_pour(char **a, int n)
{
	(void)n;
	static char block[1 << 16];
	memset(block, 'x', sizeof block);
	for (long left = number(a[0]) << 20; left > 0;) {
		ssize_t w = write(1, block, sizeof block);
		if (w < 0)
			_exit(1);
		left -= w;
	}
}

// fill DIR MIB: a file that grows.
static void act_fill(char **a, int n)
{
	(void)n;
	static char block[1 << 20];
	char path[512], text[64];
	snprintf(path, sizeof path, "%s/boxtest-fill", a[0]);
	int fd = must(open(path, O_WRONLY | O_CREAT, 0644), path);
	memset(block, 'x', sizeof block);
	long i = 0;
	ssize_t w = 0;
	for (long most = number(a[1]); i < most && (w = write(fd, block, sizeof block)) > 0; i++)
		;
	int error = errno;
	unlink(path);
	errno = error;
	snprintf(text, sizeof text, "after %ld MiB", i);
	tell(w < 0 ? w : 0, text);
}

// inodes DIR N: files without end.
static void act_inodes(char **a, int n)
{
	(void)n;
	char path[512], text[64];
	long i = 0;
	int fd = 0;
	for (long most = number(a[1]); i < most; i++) {
		snprintf(path, sizeof path, "%s/boxtest-%ld", a[0], i);
		fd = open(path, O_WRONLY | O_CREAT, 0644);
		if (fd < 0)
			break;
		close(fd);
	}
	snprintf(text, sizeof text, "after %ld files", i);
	tell(fd, text);
}

static void act_fdbomb(char **a, int n)
{
	(void)n;
	long i = 0;
	int fd = 0;
	for (long most = number(a[0]); i < most && (fd = dup(0)) >= 0; i++)
		;
	char text[64];
	snprintf(text, sizeof text, "after %ld", i);
	int error = errno;
	close(3), close(4); // room for whatever prints
	errno = error;
	tell(fd, text);
}

static void act_lock(char **a, int n)
{
	(void)n;
	size_t size = (size_t)number(a[0]) << 20;
	void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	tell(m == MAP_FAILED ? -1 : mlock(m, size), "mlock");
}

// daemon KEEP: a process that leaves its session, its parent and its signals
// behind. With "keep" it has the output still open.
static void act_daemon(char **a, int n)
{
	(void)n;
	say("ok", "leaving one behind");
	if (fork() != 0)
		return;
	setsid();
	if (fork() != 0)
		_exit(0);
	for (int s = 1; s < 65; s++)
		signal(s, SIG_IGN);
	for (int fd = 0; strcmp(a[0], "keep") && fd < 64; fd++)
		close(fd);
	(void)!chdir("/");
	for (int i = 0; i < 300; i++)
		usleep(100000);
	_exit(0);
}

// busy: some processes that each make others that make others, for five seconds; a
// few thousand in all, and none that stays.
static void act_busy(char **a, int n)
{
	(void)a, (void)n;
	for (int s = 1; s < 32; s++)
		signal(s, SIG_IGN);
	for (int i = 0; i < 6; i++)
		if (fork() == 0)
			break;
	double end = clock_of(CLOCK_MONOTONIC) + 5;
	for (int i = 0; clock_of(CLOCK_MONOTONIC) < end; i++) {
		usleep(1000);
		pid_t pid = i < 300 ? fork() : -1;
		if (pid == 0 && fork() >= 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static void act_exit(char **a, int n) { (void)n; say("ok", "%s", a[0]); _exit(number(a[0])); }

static void act_die(char **a, int n)
{
	(void)n;
	say("ok", "%s", a[0]);
	signal(number(a[0]), SIG_DFL);
	kill(getpid(), number(a[0]));
	usleep(2000000); // pid 1 of a namespace does not die of what it sends itself
	_exit(99);
}

static void act_wait(char **a, int n)
{
	(void)a, (void)n;
	say("ok", "waiting");
	for (int s = 1; s < 32; s++)
		signal(s, SIG_IGN);
	for (int i = 0; i < 60; i++)
		usleep(100000);
}

// core: a crash that would leave what it held on the disk.
static void act_core(char **a, int n)
{
	(void)a, (void)n;
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };
	setrlimit(RLIMIT_CORE, &l);
	prctl(PR_SET_DUMPABLE, 1);
	abort();
}

// bytes: what no terminal should be shown.
static void act_bytes(char **a, int n)
{
	(void)a, (void)n;
	static const char odd[] = "\x1b]52;c;Ym94dGVzdA==\x07\x1b[2J\x1bP+q\x1b\\\xff\xfe\xc0\x80\0\x9b\r\n";
	if (write(1, odd, sizeof odd - 1) != sizeof odd - 1)
		_exit(1);
}

static void act_stdin(char **a, int n)
{
	(void)a, (void)n;
	char buf[4096];
	long all = 0;
	for (ssize_t r; (r = read(0, buf, sizeof buf)) > 0;)
		all += r;
	say("ok", "%ld bytes", all);
}

const action load_actions[] = {
	{ "fact", 1, act_fact, 0 }, { "ns", 2, act_ns, 0 }, { "outside", 0, act_outside, 0 },
	{ "rlimit", 1, act_rlimit, 0 }, { "fds", 0, act_fds, 0 }, { "env", 0, act_env, 0 },
	{ "session", 0, act_session, 0 }, { "forkbomb", 1, act_forkbomb, 0 }, { "threadbomb", 1, act_threadbomb, 0 },
	{ "membomb", 1, act_membomb, 0 }, { "reserve", 1, act_reserve, 0 }, { "spin", 1, act_spin, 0 },
	{ "quota", 0, act_quota, 0 }, { "pour", 1, act_pour, 1 }, { "fill", 2, act_fill, 0 },
	{ "inodes", 2, act_inodes, 0 }, { "fdbomb", 1, act_fdbomb, 0 }, { "lock", 1, act_lock, 0 },
	{ "daemon", 1, act_daemon, 1 }, { "busy", 0, act_busy, 1 }, { "exit", 1, act_exit, 1 },
	{ "die", 1, act_die, 1 }, { "wait", 0, act_wait, 1 }, { "core", 0, act_core, 0 },
	{ "bytes", 0, act_bytes, 1 }, { "stdin", 0, act_stdin, 1 }, { NULL, 0, NULL, 0 },
};
