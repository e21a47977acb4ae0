// What honest programs do.
#include "probe.h"
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/sendfile.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static void act_pairs(char **a, int n)
{
	(void)a, (void)n;
	const int types[] = { SOCK_STREAM, SOCK_SEQPACKET };
	for (int i = 0; i < 2; i++) {
		int p[2], passed[2];
		char c[CMSG_SPACE(sizeof(int))] = { 0 }, buf[8];
		if (socketpair(AF_UNIX, types[i], 0, p) < 0)
			return tell(-1, "socketpair");
		must(pipe(passed), "pipe");
		struct iovec v = { "x", 1 };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c };
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &passed[1], sizeof(int));
		must(sendmsg(p[0], &m, 0), "sendmsg");
		v.iov_base = buf;
		tell(recvmsg(p[1], &m, 0), "passing a descriptor");
	}
}

// serve connects a client to a server and passes bytes.
static void serve(int family, struct sockaddr *s, socklen_t len)
{
	int server = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
	char buf[8];
	if (server < 0 || client < 0)
		return tell(-1, "socket");
	if (bind(server, s, len) < 0)
		return tell(-1, "bind");
	must(listen(server, 4), "listen");
	if (family != AF_UNIX)
		must(getsockname(server, s, &len), "getsockname");
	if (connect(client, s, len) < 0)
		return tell(-1, "connect");
	int accepted = must(accept(server, NULL, NULL), "accept");
	must(write(client, "boxtest", 8), "write");
	tell(read(accepted, buf, 8) == 8 ? 0 : -1, "read");
}

static void act_loopback(char **a, int n)
{
	(void)a, (void)n;
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	serve(AF_INET, (void *)&four, sizeof four);
	int u = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof four;
	four.sin_port = 0;
	if (u < 0 || bind(u, (void *)&four, len) < 0 || getsockname(u, (void *)&four, &len) < 0)
		return tell(-1, "udp");
	tell(sendto(u, "x", 1, 0, (void *)&four, len), "udp");
}

static void act_local(char **a, int n)
{
	(void)n;
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	snprintf(u.sun_path, sizeof u.sun_path, "%s", a[0]);
	serve(AF_UNIX, (void *)&u, sizeof u);
	unlink(a[0]);
	struct sockaddr_un abstract = { .sun_family = AF_UNIX, .sun_path = "\0boxtest-inside" };
	serve(AF_UNIX, (void *)&abstract, sizeof abstract);
}

static void *add(void *arg)
{
	for (int i = 0; i < 1000; i++)
		__sync_fetch_and_add((long *)arg, 1);
	return NULL;
}

static void act_threads(char **a, int n)
{
	(void)n;
	pthread_t t[64];
	long sum = 0, many = number(a[0]);
	for (long i = 0; i < many; i++)
		if ((errno = pthread_create(&t[i], NULL, add, &sum)))
			return tell(-1, "thread");
	for (long i = 0; i < many; i++)
		pthread_join(t[i], NULL);
	say(sum == many * 1000 ? "ok" : "wrong", "%ld", sum);
}

static void act_tree(char **a, int n)
{
	(void)n;
	long depth = number(a[0]);
	int status = 0;
	pid_t pid = must(fork(), "fork");
	if (pid == 0) {
		for (long i = 0; i < depth; i++) {
			pid_t below = must(fork(), "fork");
			if (below) {
				must(waitpid(below, &status, 0), "waitpid");
				_exit(WEXITSTATUS(status) + 1);
			}
		}
		_exit(1);
	}
	must(waitpid(pid, &status, 0), "waitpid");
	say(WEXITSTATUS(status) == depth + 1 ? "ok" : "wrong", "%d generations", WEXITSTATUS(status));
}

static void act_memfd(char **a, int n)
{
	(void)a, (void)n;
	int fd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return tell(fd, "memfd_create");
	must(ftruncate(fd, 8192), "ftruncate");
	char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tell(m == MAP_FAILED ? -1 : 0, "mmap");
	munmap(m, 8192);
	tell(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), "F_ADD_SEALS");
}

// jit: code that was just written, run.
static void act_jit(char **a, int n)
{
	(void)a, (void)n;
#ifdef __x86_64__
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
#else
	static const unsigned char code[] = { 0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6 };
#endif
	char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(m, code, sizeof code);
	if (mprotect(m, 4096, PROT_READ | PROT_EXEC) < 0)
		return tell(-1, "mprotect");
	__builtin___clear_cache(m, m + sizeof code);
	say(((int (*)(void))m)() == 42 ? "ok" : "wrong", "ran");
}

static void act_events(char **a, int n)
{
	(void)a, (void)n;
	int ep = epoll_create1(0), ev = eventfd(1, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct epoll_event e = { .events = EPOLLIN }, got[4];
	struct itimerspec soon = { .it_value = { 0, 1000 } };
	tell(ep < 0 || ev < 0 || timer < 0 ? -1 : 0, "epoll, eventfd, timerfd");
	must(epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e), "epoll_ctl");
	must(timerfd_settime(timer, 0, &soon, NULL), "timerfd_settime");
	must(epoll_ctl(ep, EPOLL_CTL_ADD, timer, &e), "epoll_ctl");
	tell(epoll_wait(ep, got, 4, 1000), "epoll_wait");
}

static void act_watch(char **a, int n)
{
	(void)n;
	int fd = inotify_init1(IN_NONBLOCK);
	if (fd < 0)
		return tell(fd, "inotify_init1");
	tell(inotify_add_watch(fd, a[0], IN_CREATE), a[0]);
}

// shared: memory, queues and semaphores between its own processes.
static void act_shared(char **a, int n)
{
	(void)a, (void)n;
	int id = shmget(IPC_PRIVATE, 4096, 0600);
	tell(id, "shmget");
	if (id >= 0)
		tell(shmat(id, NULL, 0) == (void *)-1 ? -1 : 0, "shmat"), shmctl(id, IPC_RMID, NULL);
	id = semget(IPC_PRIVATE, 1, 0600);
	tell(id, "semget");
	if (id >= 0)
		semctl(id, 0, IPC_RMID);
	id = msgget(IPC_PRIVATE, 0600);
	tell(id, "msgget");
	if (id >= 0)
		msgctl(id, IPC_RMID, NULL);
	int fd = open("/dev/shm/boxtest-own", O_RDWR | O_CREAT, 0600);
	tell(fd < 0 ? fd : ftruncate(fd, 4096), "/dev/shm");
}

static void act_pty(char **a, int n)
{
	(void)a, (void)n;
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0)
		return tell(master, "/dev/ptmx");
	char name[64];
	struct winsize size = { 24, 80, 0, 0 };
	must(grantpt(master), "grantpt");
	must(unlockpt(master), "unlockpt");
	must(ptsname_r(master, name, sizeof name), "ptsname");
	setsid();
	int slave = open(name, O_RDWR);
	tell(slave, name);
	tell(ioctl(slave, TIOCSCTTY, 0), "TIOCSCTTY");
	tell(ioctl(master, TIOCSWINSZ, &size), "TIOCSWINSZ");
	tell(tcsetpgrp(slave, getpid()), "tcsetpgrp");
}

// copies: the calls that copy between files of its own in DIR.
static void act_copies(char **a, int n)
{
	(void)n;
	char from[512], to[512];
	snprintf(from, sizeof from, "%s/from", a[0]);
	snprintf(to, sizeof to, "%s/to", a[0]);
	int in = open(from, O_RDWR | O_CREAT, 0644), out = open(to, O_RDWR | O_CREAT, 0644);
	tell(in < 0 || out < 0 ? -1 : 0, "open");
	must(write(in, "boxtest", 8), "write");
	lseek(in, 0, SEEK_SET);
	tell(sendfile(out, in, NULL, 8), "sendfile");
	lseek(in, 0, SEEK_SET);
	tell(copy_file_range(in, NULL, out, NULL, 8, 0), "copy_file_range");
	tell(ftruncate(out, 0), "ftruncate");
	tell(fchmod(out, 0755), "fchmod");
	tell(futimens(out, NULL), "futimens");
	tell(rename(to, from), "rename");
	tell(unlink(from), "unlink");
}

static void act_signal(char **a, int n)
{
	(void)a, (void)n;
	int status;
	pid_t pid = must(fork(), "fork");
	if (pid == 0)
		for (;;)
			pause();
	tell(kill(pid, SIGTERM), "kill");
	must(waitpid(pid, &status, 0), "waitpid");
	int fd = syscall(SYS_pidfd_open, getpid(), 0);
	tell(fd, "pidfd_open of itself");
}

const action harmless_actions[] = {
	{ "pairs", 0, act_pairs, 0 }, { "loopback", 0, act_loopback, 0 }, { "local", 1, act_local, 0 },
	{ "threads", 1, act_threads, 0 }, { "tree", 1, act_tree, 0 }, { "memfd", 0, act_memfd, 0 },
	{ "jit", 0, act_jit, 0 }, { "events", 0, act_events, 0 }, { "watch", 1, act_watch, 0 },
	{ "shared", 0, act_shared, 0 }, { "pty", 0, act_pty, 0 }, { "copies", 1, act_copies, 0 },
	{ "signal", 0, act_signal, 0 }, { NULL, 0, NULL, 0 },
};
