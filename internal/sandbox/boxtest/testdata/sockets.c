// Ways out of a box that are no files: sockets, and what processes share by name.
#include "probe.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/un.h>

static socklen_t inet_address(struct sockaddr_storage *s, const char *host, long port)
{
	memset(s, 0, sizeof *s);
	struct sockaddr_in *four = (struct sockaddr_in *)s;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)s;
	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		return sizeof *four;
	}
	if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		return sizeof *six;
	}
	say("usage", "%s is no address", host);
	_exit(122);
}

// unix_address takes "@name" for one that is in no file system.
static socklen_t unix_address(struct sockaddr_un *u, const char *name)
{
	memset(u, 0, sizeof *u);
	u->sun_family = AF_UNIX;
	size_t len = strlen(name);
	if (len >= sizeof u->sun_path) {
		say("usage", "%s is too long", name);
		_exit(122);
	}
	memcpy(u->sun_path, name, len);
	if (name[0] != '@')
		return sizeof *u;
	u->sun_path[0] = 0;
	return offsetof(struct sockaddr_un, sun_path) + len;
}

// within connects and waits at most a second, so that what vanishes is told too.
static long within(int fd, void *to, socklen_t len)
{
	must(fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
	if (connect(fd, to, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -1;
	struct pollfd p = { fd, POLLOUT, 0 };
	int error = ETIMEDOUT;
	socklen_t size = sizeof error;
	if (poll(&p, 1, 1000) == 1)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	errno = error;
	return error ? -1 : 0;
}

static void stream(int family, int type, int protocol, void *to, socklen_t len)
{
	int fd = socket(family, type, protocol);
	if (fd < 0)
		return tell(fd, "socket");
	long r = within(fd, to, len);
	tell(r, "connect");
	if (r == 0)
		tell(send(fd, "boxtest", 7, MSG_NOSIGNAL), "send");
}

// tcp HOST PORT [PROTOCOL]
static void act_tcp(char **a, int n)
{
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, a[0], number(a[1]));
	stream(s.ss_family, SOCK_STREAM, n > 2 ? number(a[2]) : 0, &s, len);
}

// ask HOST PORT: whether the tools of the suite answer there. What it says more than a
// refusal is what came back.
static void act_ask(char **a, int n)
{
	(void)n;
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, a[0], number(a[1]));
	int fd = socket(s.ss_family, SOCK_STREAM, 0);
	if (fd < 0 || within(fd, &s, len) < 0 || send(fd, "boxtest\n", 8, MSG_NOSIGNAL) < 0)
		return tell(-1, "asking");
	char got[64] = "";
	struct pollfd p = { fd, POLLIN, 0 };
	ssize_t r = poll(&p, 1, 5000) == 1 ? recv(fd, got, sizeof got - 1, 0) : 0;
	if (r < 0)
		return tell(-1, "hearing");
	say(!strcmp(got, "tools\n") ? "tools" : "other", "port %s", a[1]);
}

// serve PORT: whether anybody comes from outside within a second.
static void act_serve(char **a, int n)
{
	(void)n;
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, "0.0.0.0", number(a[0]));
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (void *)&s, len) < 0 || listen(fd, 4) < 0)
		return tell(-1, "listening");
	struct pollfd p = { fd, POLLIN, 0 };
	say(poll(&p, 1, 1000) == 1 ? "reached" : "none", "on port %s", a[0]);
}

// knock HOST PORT: the other side of that. It tries for two seconds.
static void act_knock(char **a, int n)
{
	(void)n;
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, a[0], number(a[1]));
	for (int i = 0; i < 40; i++) {
		int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
		if (connect(fd, (void *)&s, len) == 0)
			return say("in", "after %d times", i);
		close(fd);
		usleep(50000);
	}
	say("none", "of 40 times");
}

static void act_fastopen(char **a, int n)
{
	(void)n;
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, a[0], number(a[1]));
	int fd = socket(s.ss_family, SOCK_STREAM, 0);
	tell(fd < 0 ? fd : sendto(fd, "boxtest", 7, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&s, len), "MSG_FASTOPEN");
}

// udp HOST PORT: without and with connecting first.
static void act_udp(char **a, int n)
{
	(void)n;
	struct sockaddr_storage s;
	socklen_t len = inet_address(&s, a[0], number(a[1]));
	int fd = socket(s.ss_family, SOCK_DGRAM, 0);
	if (fd < 0)
		return tell(fd, "socket");
	ssize_t sent = sendto(fd, "boxtest", 7, 0, (void *)&s, len);
	// Of an empty loopback the refusal comes only with the next call.
	struct pollfd p = { fd, POLLIN | POLLERR, 0 };
	if (sent >= 0 && poll(&p, 1, 100) == 1 && p.revents & POLLERR)
		sent = -1, errno = ECONNREFUSED;
	tell(sent, "sendto");
	if (connect(fd, (void *)&s, len) < 0)
		return tell(-1, "connect");
	sent = send(fd, "boxtest", 7, 0);
	if (sent >= 0 && poll(&p, 1, 100) == 1 && p.revents & POLLERR)
		sent = -1, errno = ECONNREFUSED;
	tell(sent, "send");
}

static void act_unix(char **a, int n)
{
	(void)n;
	struct sockaddr_un u;
	socklen_t len = unix_address(&u, a[0]);
	stream(AF_UNIX, SOCK_STREAM, 0, &u, len);
}

static void act_seqpacket(char **a, int n)
{
	(void)n;
	struct sockaddr_un u;
	socklen_t len = unix_address(&u, a[0]);
	stream(AF_UNIX, SOCK_SEQPACKET, 0, &u, len);
}

// unixdgram PATH: a datagram without connecting; from one of a pair, too.
static void act_unixdgram(char **a, int n)
{
	(void)n;
	struct sockaddr_un u;
	socklen_t len = unix_address(&u, a[0]);
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), pair[2];
	tell(fd < 0 ? fd : sendto(fd, "boxtest", 7, 0, (void *)&u, len), "sendto");
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0)
		return tell(-1, "socketpair");
	tell(sendto(pair[0], "boxtest", 7, 0, (void *)&u, len), "sendto from a pair");
	tell(connect(pair[0], (void *)&u, len) < 0 ? -1 : send(pair[0], "boxtest", 7, 0), "connecting a pair");
}

static void act_vsock(char **a, int n)
{
	struct sockaddr_vm v = { .svm_family = AF_VSOCK, .svm_cid = number(a[0]), .svm_port = n > 1 ? number(a[1]) : 1 };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	tell(fd, "socket");
	if (fd >= 0)
		tell(within(fd, &v, sizeof v), "connect");
}

// socket FAMILY TYPE PROTOCOL
static void act_socket(char **a, int n)
{
	(void)n;
	tell_fd(socket(number(a[0]), number(a[1]), number(a[2])), "socket");
}

// families: every family but the three that programs use, in every type.
static void act_families(char **a, int n)
{
	(void)a, (void)n;
	int made = 0;
	for (int family = 3; family < 64; family++)
		for (int type = 1; type <= 10; type++) {
			if (family == AF_INET6 || family == AF_NETLINK)
				continue;
			int fd = socket(family, type, 0);
			if (fd >= 0) {
				say("ok", "family %d, type %d", family, type);
				close(fd);
				made++;
			}
		}
	if (!made)
		say("none", "of 60 families");
}

// netlinks: every netlink protocol but that of routes.
static void act_netlinks(char **a, int n)
{
	(void)a, (void)n;
	int made = 0;
	for (int p = 1; p < 32; p++) {
		int fd = socket(AF_NETLINK, SOCK_RAW, p);
		if (fd >= 0) {
			say("ok", "netlink protocol %d", p);
			close(fd);
			made++;
		}
	}
	if (!made)
		say("none", "of 31 protocols");
}

// route: a change of the network by netlink and by ioctl.
static void act_route(char **a, int n)
{
	(void)a, (void)n;
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} ask = { { sizeof ask, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 }, { 0, 0, 0, 1, IFF_UP, IFF_UP } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char more[1024];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0) {
		tell(-1, "netlink");
	} else {
		errno = -answer.error.error;
		tell(errno ? -1 : 0, "RTM_NEWLINK");
	}
	struct ifreq ifr = { .ifr_name = "lo" };
	ifr.ifr_flags = IFF_UP | IFF_PROMISC;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	tell(fd < 0 ? fd : ioctl(fd, SIOCSIFFLAGS, &ifr), "SIOCSIFFLAGS");
}

// sockopt: a program for the kernel on a socket, and another protocol on top.
static void act_sockopt(char **a, int n)
{
	(void)a, (void)n;
	struct { uint16_t code; uint8_t t, f; uint32_t k; } ret = { 6, 0, 0, ~0u };
	struct { uint16_t len; void *f; } program = { 1, &ret };
	int pair[2];
	int fd = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 ? -1 : pair[0];
	tell(fd < 0 ? fd : setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), "SO_ATTACH_FILTER");
	fd = socket(AF_INET, SOCK_STREAM, 0);
	tell(fd < 0 ? fd : setsockopt(fd, SOL_TCP, TCP_ULP, "tls", 3), "TCP_ULP");
}

// interfaces: names beyond the loopback.
static void act_interfaces(char **a, int n)
{
	(void)a, (void)n;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), other = 0;
	if (fd < 0)
		return tell(fd, "socket");
	for (int i = 1; i < 64; i++) {
		struct ifreq r = { .ifr_ifindex = i };
		if (ioctl(fd, SIOCGIFNAME, &r) == 0 && strcmp(r.ifr_name, "lo")) {
			// Those that every network namespace is born with lead nowhere, being down.
			if (ioctl(fd, SIOCGIFFLAGS, &r) == 0 && r.ifr_flags & IFF_UP)
				say("interface", "%s", r.ifr_name), other++;
		}
	}
	if (!other)
		say("none", "beyond the loopback");
}

static void act_shmget(char **a, int n)
{
	(void)n;
	int id = shmget(number(a[0]), 0, 0);
	if (id < 0)
		return tell(id, "shmget");
	char *m = shmat(id, NULL, SHM_RDONLY);
	show(m, m == (void *)-1 ? -1 : 64, "shmat");
}

static void act_msgget(char **a, int n)
{
	(void)n;
	int id = msgget(number(a[0]), 0);
	struct { long type; char text[8]; } m = { 1, "boxtest" };
	tell(id < 0 ? id : msgsnd(id, &m, 8, IPC_NOWAIT), "msgsnd");
}

static void act_semget(char **a, int n)
{
	(void)n;
	int id = semget(number(a[0]), 0, 0);
	tell(id < 0 ? id : semctl(id, 0, SETVAL, 7), "semctl");
}

static void act_mq(char **a, int n)
{
	(void)n;
	mqd_t q = mq_open(a[0], O_WRONLY | O_NONBLOCK);
	tell(q == (mqd_t)-1 ? -1 : mq_send(q, "boxtest", 8, 1), "mq_send");
}

const action socket_actions[] = {
	{ "tcp", 2, act_tcp, 0 }, { "ask", 2, act_ask, 0 }, { "serve", 1, act_serve, 0 }, { "knock", 2, act_knock, 0 }, { "fastopen", 2, act_fastopen, 0 }, { "udp", 2, act_udp, 0 },
	{ "unix", 1, act_unix, 0 }, { "seqpacket", 1, act_seqpacket, 0 }, { "unixdgram", 1, act_unixdgram, 0 },
	{ "vsock", 1, act_vsock, 0 }, { "socket", 3, act_socket, 0 }, { "families", 0, act_families, 0 },
	{ "netlinks", 0, act_netlinks, 0 }, { "route", 0, act_route, 0 }, { "sockopt", 0, act_sockopt, 0 },
	{ "interfaces", 0, act_interfaces, 0 }, { "shmget", 1, act_shmget, 0 }, { "msgget", 1, act_msgget, 0 },
	{ "semget", 1, act_semget, 0 }, { "mq", 1, act_mq, 0 }, { NULL, 0, NULL, 0 },
};
