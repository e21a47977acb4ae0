// Several calls that together get around what each of them is held to.
#include "probe.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/sysmacros.h>
#include <time.h>

// A file open for reading, opened again for writing by each of its other names.
static void act_reopen(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_RDONLY);
	if (fd < 0)
		return tell(fd, a[0]);
	const char *forms[] = { "/proc/self/fd/%d", "/proc/thread-self/fd/%d", "/dev/fd/%d" };
	for (int i = 0; i < 3; i++) {
		char path[64];
		snprintf(path, sizeof path, forms[i], fd);
		int again = open(path, O_RDWR);
		tell(again, path);
		if (again >= 0)
			must(write(again, "boxtest\n", 8), "writing");
		tell_fd(open(path, O_WRONLY | O_TRUNC), path);
	}
	tell(fcntl(fd, F_SETFL, O_RDWR) < 0 ? -1 : write(fd, "boxtest\n", 8), "F_SETFL");
}

// Changing a file through a descriptor that only reads.
static void act_mapwrite(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_RDONLY);
	if (fd < 0)
		return tell(fd, a[0]);
	char *m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return tell(-1, "mmap");
	long r = mprotect(m, 4096, PROT_READ | PROT_WRITE);
	tell(r, "mprotect");
	if (r == 0)
		memcpy(m, "boxtest", 7);
	tell(ftruncate(fd, 0), "ftruncate");
	tell(fallocate(fd, 0, 0, 8192), "fallocate");
}

// What copies between descriptors, from one that was opened without the right to read.
static void act_copyfrom(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_RDONLY), pipes[2], out = open("/dev/null", O_RDWR);
	tell(fd, a[0]);
	if (fd < 0)
		fd = open(a[0], O_PATH);
	if (fd < 0)
		return tell(fd, a[0]);
	must(pipe(pipes), "pipe");
	tell(sendfile(out, fd, NULL, 64), "sendfile");
	tell(splice(fd, NULL, pipes[1], NULL, 64, SPLICE_F_NONBLOCK), "splice");
	tell(copy_file_range(fd, NULL, out, NULL, 64, 0), "copy_file_range");
	tell(syscall(SYS_ioctl, out, 0x40049409, fd), "FICLONE");
	char buf[64];
	tell(pread(fd, buf, sizeof buf, 0), "pread");
}

// handle PATH: a file by its handle, past all directories.
static void act_handle(char **a, int n)
{
	(void)n;
	struct { struct file_handle h; unsigned char room[128]; } u;
	int mount;
	u.h.handle_bytes = sizeof u.room;
	long r = name_to_handle_at(AT_FDCWD, a[0], &u.h, &mount, 0);
	tell(r, "name_to_handle_at");
	int at = open("/", O_RDONLY | O_DIRECTORY);
	if (r < 0) { // an ext4 handle of the root directory of a file system
		u.h.handle_bytes = 8;
		u.h.handle_type = 1;
		memcpy(u.h.f_handle, (uint32_t[]){ 2, 0 }, 8);
	}
	tell_fd(open_by_handle_at(at, &u.h, O_RDONLY), "open_by_handle_at");
}

// climb PATH: up by descriptors from the working directory, and down again.
static void act_climb(char **a, int n)
{
	(void)n;
	int fd = must(open(".", O_RDONLY | O_DIRECTORY), ".");
	for (int i = 0; i < 64; i++) {
		int up = openat(fd, "..", O_RDONLY | O_DIRECTORY);
		if (up < 0) // the way up need not be readable
			up = openat(fd, "..", O_PATH | O_DIRECTORY);
		if (up < 0)
			return tell(up, "..");
		close(fd);
		fd = up;
	}
	char buf[128];
	int file = openat(fd, a[0] + 1, O_RDONLY);
	if (file < 0)
		return tell(file, a[0]);
	show(buf, read(file, buf, sizeof buf), a[0]);
}

// A race is a thread that flips something back and forth while the main one tries.
struct race {
	char **a;
	volatile int over;
	volatile unsigned long flips;
	char path[256];
	int fd;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void start(struct race *r, void *(*flip)(void *), pthread_t *t)
{
	if ((errno = pthread_create(t, NULL, flip, r)))
		must(-1, "thread");
}

static void finish(struct race *r, pthread_t t, unsigned long tries, unsigned long got)
{
	r->over = 1;
	pthread_join(t, NULL);
	say("done", "%lu times changed, %lu times tried, %lu times got", r->flips, tries, got);
}

// Exchanges two names.
static void *flip_names(void *arg)
{
	struct race *r = arg;
	while (!r->over)
		if (syscall(SYS_renameat2, AT_FDCWD, r->a[0], AT_FDCWD, r->a[1], 2) == 0)
			r->flips++;
	return NULL;
}

// swaprace A B TAIL: A and B, a link and a file or directory, change places while
// A and what is at A+TAIL is read, written and made.
static void act_swaprace(char **a, int n)
{
	(void)n;
	struct race r = { .a = a };
	char path[512], buf[256];
	snprintf(path, sizeof path, "%s%s", a[0], strcmp(a[2], "-") ? a[2] : "");
	pthread_t t;
	unsigned long tries = 0, got = 0;
	start(&r, flip_names, &t);
	for (double end = now() + 0.4; now() < end; tries++) {
		int fd = open(path, O_RDONLY);
		if (fd >= 0) {
			ssize_t len = read(fd, buf, sizeof buf - 1);
			buf[len > 0 ? len : 0] = 0;
			if (strstr(buf, "canary"))
				say("leaked", "%s", buf);
			close(fd);
		}
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
		if (fd >= 0) {
			got += write(fd, "boxtest\n", 8) == 8;
			close(fd);
		}
		truncate(path, 3);
		if (strcmp(a[2], "-")) // else it would be the link itself, and the race over
			unlink(path);
	}
	finish(&r, t, tries, got);
}

static void *flip_memory(void *arg)
{
	struct race *r = arg;
	size_t len = strlen(r->a[0]);
	while (!r->over) {
		memcpy(r->path, r->a[r->flips++ & 1], len + 1);
	}
	return NULL;
}

// memoryrace A B: a path in memory changes between A and B, of one length, while
// calls read it.
static void act_memoryrace(char **a, int n)
{
	(void)n;
	struct race r = { .a = a };
	strcpy(r.path, a[0]);
	pthread_t t;
	unsigned long tries = 0, got = 0;
	start(&r, flip_memory, &t);
	for (double end = now() + 0.4; now() < end; tries++) {
		int fd = open(r.path, O_WRONLY | O_CREAT, 0644);
		if (fd >= 0) {
			got += write(fd, "boxtest\n", 8) == 8;
			close(fd);
		}
		got += mkdir(r.path, 0755) == 0;
		got += symlink("x", r.path) == 0;
		got += mknod(r.path, S_IFREG | 0644, 0) == 0;
		truncate(r.path, 3);
		chmod(r.path, 0777);
		if (unlink(a[0]) < 0)
			rmdir(a[0]);
	}
	finish(&r, t, tries, got);
}

static void *flip_fd(void *arg)
{
	struct race *r = arg;
	int one = open(r->a[0], O_PATH | O_DIRECTORY), two = open(r->a[1], O_PATH | O_DIRECTORY);
	while (!r->over)
		dup2(r->flips++ & 1 ? two : one, r->fd);
	return NULL;
}

static void *flip_dir(void *arg)
{
	struct race *r = arg;
	while (!r->over)
		if (chdir(r->a[r->flips & 1]) == 0)
			r->flips++;
	return NULL;
}

// dirrace HOW A B NAME: the directory that NAME is relative to changes between A
// and B while NAME is made, changed and removed.
static void act_dirrace(char **a, int n)
{
	(void)n;
	struct race r = { .a = a + 1, .fd = AT_FDCWD };
	int by_fd = !strcmp(a[0], "fd");
	if (by_fd)
		r.fd = must(open(a[1], O_PATH | O_DIRECTORY), a[1]);
	pthread_t t;
	unsigned long tries = 0, got = 0;
	start(&r, by_fd ? flip_fd : flip_dir, &t);
	for (double end = now() + 0.4; now() < end; tries++) {
		int fd = openat(r.fd, a[3], O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd >= 0) {
			got += write(fd, "boxtest\n", 8) == 8;
			close(fd);
		}
		unlinkat(r.fd, a[3], 0);
	}
	finish(&r, t, tries, got);
}

// flood PATH N: as many refusals as there is time for, from several threads.
static void *refuse(void *arg)
{
	struct race *r = arg;
	while (!r->over) {
		if (open(r->a[0], O_WRONLY | O_CREAT, 0644) >= 0)
			say("ok", "%s was made", r->a[0]);
		__sync_fetch_and_add(&r->flips, 1);
	}
	return NULL;
}

static void act_flood(char **a, int n)
{
	(void)n;
	struct race r = { .a = a };
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		start(&r, refuse, &t[i]);
	for (double end = now() + 1; now() < end;)
		usleep(10000);
	r.over = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	say("done", "%lu times refused in a second", r.flips);
}

// dying PATH: callers that are killed in the middle of their call.
static void act_dying(char **a, int n)
{
	(void)n;
	int rounds = 0;
	for (double end = now() + 0.5; now() < end; rounds++) {
		pid_t pid = fork();
		if (pid == 0)
			for (;;) {
				close(open(a[0], O_WRONLY | O_CREAT, 0644));
				mkdir(a[0], 0755);
			}
		usleep(rounds % 700);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	say("done", "%d callers", rounds);
}

// deep DIR N NAME: N directories down, by descriptors, for the path is too long.
static void act_deep(char **a, int n)
{
	(void)n;
	int fd = must(open(a[0], O_RDONLY | O_DIRECTORY), a[0]);
	for (long i = number(a[1]); i > 0; i--) {
		const char *name = "a-directory-name-that-takes-some-room";
		if (mkdirat(fd, name, 0755) < 0 && errno != EEXIST)
			return tell(-1, "mkdirat");
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		if (next < 0)
			return tell(next, "openat");
		close(fd);
		fd = next;
	}
	tell_fd(openat(fd, a[2], O_WRONLY | O_CREAT | O_EXCL, 0644), a[2]);
}

static int wanted(const char *text, const char *name, int depth, long *budget)
{
	char path[1024];
	DIR *d = depth > 12 || *budget < 0 ? NULL : opendir(text);
	if (!d)
		return 0;
	int found = 0;
	for (struct dirent *e; !found && (e = readdir(d)) && (*budget)-- > 0;) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof path, "%s/%s", strcmp(text, "/") ? text : "", e->d_name);
		if (strstr(e->d_name, name)) {
			say("found", "%s", path);
			found = 1;
		} else if (e->d_type == DT_DIR && strcmp(path, "/proc") && strcmp(path, "/sys") && strcmp(path, "/usr")) {
			found = wanted(path, name, depth + 1, budget);
		}
	}
	closedir(d);
	return found;
}

// find NAME: anywhere in what can be seen.
static void act_find(char **a, int n)
{
	(void)n;
	long budget = 200000;
	if (!wanted("/", a[0], 0, &budget))
		say(budget > 0 ? "none" : "toomuch", "%s", a[0]);
}

static void look_at(const char *dir, int depth)
{
	const char *harmless[] = { "null", "zero", "full", "random", "urandom", "tty", "ptmx" };
	char path[1024];
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		struct stat st;
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		if (e->d_name[0] == '.' || lstat(path, &st) < 0)
			continue;
		int known = 0;
		for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
			known |= !strcmp(e->d_name, harmless[i]) || !strcmp(dir, "/dev/pts");
		if (S_ISDIR(st.st_mode) && depth < 3)
			look_at(path, depth + 1);
		else if ((S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) && !known)
			say("device", "%s %d:%d", path, major(st.st_rdev), minor(st.st_rdev));
		else if (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode))
			say("channel", "%s", path);
	}
	if (d)
		closedir(d);
}

// devices: what /dev has beyond what is harmless.
static void act_devices(char **a, int n)
{
	(void)a, (void)n;
	look_at("/dev", 0);
	say("seen", "/dev");
}

const action trick_actions[] = {
	{ "reopen", 1, act_reopen, 0 }, { "mapwrite", 1, act_mapwrite, 0 }, { "copyfrom", 1, act_copyfrom, 0 },
	{ "handle", 1, act_handle, 0 }, { "climb", 1, act_climb, 0 }, { "swaprace", 3, act_swaprace, 0 },
	{ "memoryrace", 2, act_memoryrace, 0 }, { "dirrace", 4, act_dirrace, 0 }, { "flood", 1, act_flood, 0 },
	{ "dying", 1, act_dying, 0 }, { "deep", 3, act_deep, 0 }, { "find", 1, act_find, 0 },
	{ "devices", 0, act_devices, 0 }, { NULL, 0, NULL, 0 },
};
