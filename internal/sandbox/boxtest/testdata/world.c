// What stands outside of the box: a process that holds a secret, listens wherever
// one can, and shares memory by name. It notices what reaches it.
//
//	probe world DIR MARK SECRET
//
// It prints "NAME value" lines and "ready". When a line comes on its standard input,
// or that ends, it prints "got …" for everything that has happened to it, and "end".
// Sockets in the file system are made in DIR.
#include "probe.h"
#include <arpa/inet.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/un.h>

static char secret[64];
static volatile sig_atomic_t signalled;

static struct listener {
	const char *what;
	int fd;
	int connects;
} listeners[32];
static int count;

static void hear(const char *what, int fd, int connects)
{
	must(fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
	listeners[count++] = (struct listener){ what, fd, connects };
}

static void on_signal(int s) { signalled = s; }

// inet opens a listener on the loopback and prints its port; a family that this
// machine lacks is left out.
static void inet(const char *name, int family, int type)
{
	struct sockaddr_storage s = { .ss_family = family };
	socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if (family == AF_INET)
		((struct sockaddr_in *)&s)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&s)->sin6_addr = in6addr_loopback;
	int fd = socket(family, type, 0);
	if (fd < 0 || bind(fd, (void *)&s, len) < 0) {
		printf("%s 9\n", name);
		return;
	}
	if (type == SOCK_STREAM) {
		int queue = 16;
		setsockopt(fd, SOL_TCP, TCP_FASTOPEN, &queue, sizeof queue);
		must(listen(fd, 16), "listen");
	}
	must(getsockname(fd, (void *)&s, &len), "getsockname");
	printf("%s %d\n", name, ntohs(((struct sockaddr_in *)&s)->sin_port));
	hear(name, fd, type == SOCK_STREAM);
}

static void local(const char *what, int type, const char *format, const char *in)
{
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	snprintf(u.sun_path, sizeof u.sun_path, format, in);
	socklen_t len = sizeof u;
	if (u.sun_path[0] == '@') {
		len = offsetof(struct sockaddr_un, sun_path) + strlen(u.sun_path);
		u.sun_path[0] = 0;
	}
	int fd = must(socket(AF_UNIX, type, 0), what);
	must(bind(fd, (void *)&u, len), what);
	if (u.sun_path[0])
		chmod(u.sun_path, 0777);
	if (type != SOCK_DGRAM)
		must(listen(fd, 16), what);
	hear(what, fd, type != SOCK_DGRAM);
}

static int shared, queue, semaphores, posix;
static char *segment, *posix_segment;
static mqd_t mqueue;
static char posix_name[128], mqueue_name[64];

static void share(const char *mark)
{
	// A key that nothing else has: the mark is random.
	unsigned key = 0;
	for (const char *p = mark; *p; p++)
		key = key * 31 + *p;
	key = (key & 0x3fffffff) | 0x40000000;
	shared = must(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666), "shmget");
	queue = must(msgget(key, IPC_CREAT | IPC_EXCL | 0666), "msgget");
	semaphores = must(semget(key, 1, IPC_CREAT | IPC_EXCL | 0666), "semget");
	segment = shmat(shared, NULL, 0);
	strcpy(segment, secret);
	printf("KEY %u\n", key);
	snprintf(mqueue_name, sizeof mqueue_name, "/%s", mark);
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 64 };
	mqueue = mq_open(mqueue_name, O_RDWR | O_CREAT | O_NONBLOCK, 0666, &attr);
	snprintf(posix_name, sizeof posix_name, "/dev/shm/%s-outside", mark);
	posix = open(posix_name, O_RDWR | O_CREAT | O_EXCL, 0666);
	if (posix >= 0) {
		must(ftruncate(posix, 4096), "ftruncate");
		fchmod(posix, 0666);
		posix_segment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, posix, 0);
		strcpy(posix_segment, secret);
	}
}

// tidy says what became of what was shared, and takes it away.
static void tidy(void)
{
	char buf[64];
	struct msqid_ds q;
	if (strcmp(segment, secret))
		printf("got shared memory changed\n");
	if (posix_segment && strcmp(posix_segment, secret))
		printf("got POSIX shared memory changed\n");
	if (posix >= 0 && access(posix_name, F_OK) < 0)
		printf("got POSIX shared memory removed\n");
	if (msgctl(queue, IPC_STAT, &q) < 0 || q.msg_qnum)
		printf("got a message\n");
	if (semctl(semaphores, 0, GETVAL))
		printf("got a semaphore changed\n");
	if (mqueue != (mqd_t)-1 && mq_receive(mqueue, buf, sizeof buf, NULL) >= 0)
		printf("got a POSIX message\n");
	shmctl(shared, IPC_RMID, NULL);
	msgctl(queue, IPC_RMID, NULL);
	semctl(semaphores, 0, IPC_RMID);
	unlink(posix_name);
	mq_unlink(mqueue_name);
}

// What the caller of the suite gave us: the suite may run at any priority.
static int priority, scheduler;

static void report(void)
{
	char buf[256];
	if (strcmp(secret + 40, "boxtest-end"))
		printf("got its memory written\n");
	if (signalled)
		printf("got signal %d\n", signalled);
	struct rlimit l;
	getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur == 16)
		printf("got another limit\n");
	if (getpriority(PRIO_PROCESS, 0) != priority || sched_getscheduler(0) != scheduler)
		printf("got another priority\n");
	for (int i = 0; i < count; i++) {
		int fd = listeners[i].fd;
		while (listeners[i].connects) {
			int c = accept(fd, NULL, NULL);
			if (c < 0)
				break;
			printf("got a connection on %s\n", listeners[i].what);
			close(c);
		}
		while (!listeners[i].connects && recv(fd, buf, sizeof buf, MSG_DONTWAIT) >= 0)
			printf("got a datagram on %s\n", listeners[i].what);
	}
	tidy();
}

void world(char **a, int n)
{
	if (n < 3)
		_exit(122);
	const char *dir = a[0], *mark = a[1];
	snprintf(secret, 40, "%s", a[2]);
	strcpy(secret + 40, "boxtest-end");
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	priority = getpriority(PRIO_PROCESS, 0);
	scheduler = sched_getscheduler(0);
	const int all[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGIO, SIGURG, SIGWINCH };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		signal(all[i], on_signal);
	printf("PID %d\nADDR 0x%lx\n", getpid(), (unsigned long)secret);
	inet("PORT", AF_INET, SOCK_STREAM);
	inet("UDP", AF_INET, SOCK_DGRAM);
	inet("PORT6", AF_INET6, SOCK_STREAM);
	inet("UDP6", AF_INET6, SOCK_DGRAM);
	char path[256];
	const char *names[] = { "docker.sock", "ssh-agent", "bus", "X0", "wayland-0" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		local(names[i], SOCK_STREAM, "%s", path);
	}
	local("datagram", SOCK_DGRAM, "%s/datagram", dir);
	local("packets", SOCK_SEQPACKET, "%s/packets", dir);
	local("abstract", SOCK_STREAM, "@%s", mark);
	local("abstract datagram", SOCK_DGRAM, "@%s-datagram", mark);
	share(mark);
	printf("ready\n");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) < 0 && errno == EINTR)
		;
	report();
	printf("end\n");
	fflush(stdout);
	_exit(0);
}
