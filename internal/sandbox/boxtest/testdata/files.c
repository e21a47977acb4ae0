// One system call on a path, each.
#include "probe.h"
#include <dirent.h>
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static void act_read(char **a, int n)
{
	(void)n;
	char buf[256];
	int fd = open(a[0], O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return tell(fd, a[0]);
	ssize_t got = read(fd, buf, sizeof buf);
	if (got == 0)
		return say("empty", "%s", a[0]);
	show(buf, got, a[0]);
}

static void act_opath(char **a, int n)
{
	(void)n;
	tell_fd(open(a[0], O_PATH), a[0]);
}

static void act_ls(char **a, int n)
{
	(void)n;
	DIR *d = opendir(a[0]);
	if (!d)
		return tell(-1, a[0]);
	char names[512] = "";
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			strncat(names, e->d_name, sizeof names - strlen(names) - 1), strncat(names, " ", sizeof names - strlen(names) - 1);
	say(names[0] ? "ok" : "empty", "%s: %s", a[0], names);
}

static void write_to(char *path, int flags)
{
	int fd = open(path, flags | O_NONBLOCK, 0644);
	if (fd < 0)
		return tell(fd, path);
	tell(write(fd, "boxtest\n", 8), path);
}

static void act_write(char **a, int n) { (void)n; write_to(a[0], O_WRONLY); }
static void act_append(char **a, int n) { (void)n; write_to(a[0], O_WRONLY | O_APPEND); }
static void act_rdwr(char **a, int n) { (void)n; write_to(a[0], O_RDWR); }
static void act_otrunc(char **a, int n) { (void)n; write_to(a[0], O_WRONLY | O_TRUNC); }
static void act_create(char **a, int n) { (void)n; write_to(a[0], O_WRONLY | O_CREAT | O_EXCL); }
static void act_make(char **a, int n) { (void)n; write_to(a[0], O_WRONLY | O_CREAT | O_TRUNC); }

// wopen PATH: for writing, but nothing is written.
static void act_wopen(char **a, int n)
{
	(void)n;
	tell_fd(open(a[0], O_WRONLY | O_NONBLOCK), a[0]);
}

static void act_rdtrunc(char **a, int n)
{
	(void)n;
	tell_fd(open(a[0], O_RDONLY | O_TRUNC), a[0]);
}

static void act_creat(char **a, int n)
{
	(void)n;
#ifdef SYS_creat
	tell_fd(syscall(SYS_creat, a[0], 0644), a[0]);
#else
	tell_fd(open(a[0], O_CREAT | O_WRONLY | O_TRUNC, 0644), a[0]);
#endif
}

static void act_openat2(char **a, int n)
{
	(void)n;
	struct { uint64_t flags, mode, resolve; } how = { O_WRONLY | O_CREAT, 0644, 0 };
	tell_fd(syscall(CALL_openat2, AT_FDCWD, a[0], &how, sizeof how), a[0]);
}

// tmpfile DIR NAME: a file without a name, which then gets one.
static void act_tmpfile(char **a, int n)
{
	(void)n;
	int dir = open(a[0], O_RDONLY | O_DIRECTORY);
	int fd = dir < 0 ? -1 : openat(dir, ".", O_TMPFILE | O_RDWR, 0644);
	if (fd < 0)
		return tell(fd, "O_TMPFILE");
	char self[64];
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	long r = linkat(AT_FDCWD, self, dir, a[1], AT_SYMLINK_FOLLOW);
	if (r < 0)
		r = linkat(fd, "", dir, a[1], AT_EMPTY_PATH);
	tell(r, "naming it");
}

static void act_truncate(char **a, int n) { (void)n; tell(truncate(a[0], 0), a[0]); }
static void act_unlink(char **a, int n) { (void)n; tell(unlink(a[0]), a[0]); }
static void act_rmdir(char **a, int n) { (void)n; tell(rmdir(a[0]), a[0]); }
static void act_mkdir(char **a, int n) { (void)n; tell(mkdir(a[0], 0755), a[0]); }
static void act_symlink(char **a, int n) { (void)n; tell(symlink(a[0], a[1]), a[1]); }
static void act_link(char **a, int n) { (void)n; tell(linkat(AT_FDCWD, a[0], AT_FDCWD, a[1], AT_SYMLINK_FOLLOW), a[1]); }
static void act_rename(char **a, int n) { (void)n; tell(rename(a[0], a[1]), a[1]); }
static void act_exchange(char **a, int n) { (void)n; tell(syscall(SYS_renameat2, AT_FDCWD, a[0], AT_FDCWD, a[1], 2), a[1]); }

// linkfd PATH NEW: a link to an open file.
static void act_linkfd(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_PATH);
	if (fd < 0)
		return tell(fd, a[0]);
	char self[64];
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	tell(linkat(AT_FDCWD, self, AT_FDCWD, a[1], AT_SYMLINK_FOLLOW), a[1]);
}

// mknod TYPE PATH [MAJOR MINOR]
static void act_mknod(char **a, int n)
{
	mode_t type = !strcmp(a[0], "fifo") ? S_IFIFO : !strcmp(a[0], "char") ? S_IFCHR : !strcmp(a[0], "block") ? S_IFBLK : S_IFREG;
	dev_t dev = n > 3 ? (dev_t)(number(a[2]) << 8 | number(a[3])) : 0;
	tell(mknod(a[1], type | 0644, dev), a[1]);
}

static void act_stat(char **a, int n)
{
	(void)n;
	struct stat st;
	long r = stat(a[0], &st);
	if (r < 0)
		return tell(r, a[0]);
	say("ok", "%s: %lld bytes, mode %o", a[0], (long long)st.st_size, st.st_mode);
}

static void act_statx(char **a, int n)
{
	(void)n;
	char buf[256];
	tell(syscall(SYS_statx, AT_FDCWD, a[0], AT_SYMLINK_NOFOLLOW, 0x7ff, buf), a[0]);
}

static void act_access(char **a, int n) { (void)n; tell(access(a[0], F_OK), a[0]); }
static void act_statfs(char **a, int n) { (void)n; struct statfs s; tell(statfs(a[0], &s), a[0]); }

static void act_readlink(char **a, int n)
{
	(void)n;
	char buf[512];
	show(buf, readlink(a[0], buf, sizeof buf), a[0]);
}

// chmod PATH MODE, in each way that there is.
static void act_chmod(char **a, int n)
{
	(void)n;
	mode_t mode = octal(a[1]);
	tell(chmod(a[0], mode), "chmod");
	tell(syscall(SYS_fchmodat, AT_FDCWD, a[0], mode), "fchmodat");
	tell(syscall(CALL_fchmodat2, AT_FDCWD, a[0], mode, 0), "fchmodat2");
	int fd = open(a[0], O_PATH);
	if (fd < 0)
		return tell(fd, "O_PATH");
	char self[64];
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	tell(chmod(self, mode), "chmod of a descriptor's link");
	tell(syscall(CALL_fchmodat2, fd, "", mode, AT_EMPTY_PATH), "fchmodat2 of a descriptor");
	fd = open(a[0], O_RDONLY);
	tell(fd < 0 ? fd : fchmod(fd, mode), "fchmod");
}

static void act_chown(char **a, int n)
{
	(void)n;
	// -1 changes nobody, and still needs the right to.
	uid_t who = number(a[1]);
	tell(fchownat(AT_FDCWD, a[0], who, -1, 0), "fchownat");
	tell(lchown(a[0], who, -1), "lchown");
}

static void act_utimens(char **a, int n)
{
	(void)n;
	struct timespec zero[2] = { { 1, 0 }, { 1, 0 } };
	tell(utimensat(AT_FDCWD, a[0], zero, 0), "given times");
	tell(utimensat(AT_FDCWD, a[0], NULL, 0), "now");
	int fd = open(a[0], O_RDONLY);
	tell(fd < 0 ? fd : futimens(fd, zero), "of a descriptor");
}

static void act_xattr(char **a, int n)
{
	(void)n;
	tell(setxattr(a[0], "user.boxtest", "x", 1, 0), "setxattr");
	tell(removexattr(a[0], "user.canary"), "removexattr");
	struct { uint64_t value; uint32_t size, flags; } args = { (uintptr_t) "x", 1, 0 };
	tell(syscall(CALL_setxattrat, AT_FDCWD, a[0], 0, "user.boxtest", &args, sizeof args), "setxattrat");
}

static void act_getxattr(char **a, int n)
{
	(void)n;
	char buf[128];
	show(buf, getxattr(a[0], "user.canary", buf, sizeof buf), a[0]);
}

// setflags PATH: makes it append-only, if the file system knows that.
static void act_setflags(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_RDONLY);
	if (fd < 0)
		return tell(fd, a[0]);
	long flags = 0x20; // FS_APPEND_FL
	tell(syscall(SYS_ioctl, fd, 0x40086602, &flags), "FS_IOC_SETFLAGS");
	char attr[32] = { 0 };
	tell(syscall(CALL_file_setattr, AT_FDCWD, a[0], attr, 24, 0), "file_setattr");
}

static void act_inotify(char **a, int n)
{
	(void)n;
	int fd = inotify_init1(IN_NONBLOCK);
	if (fd < 0)
		return tell(fd, "inotify_init1");
	tell(inotify_add_watch(fd, a[0], IN_ALL_EVENTS), a[0]);
}

static void act_dnotify(char **a, int n)
{
	(void)n;
	int fd = open(a[0], O_RDONLY | O_DIRECTORY);
	tell(fd < 0 ? fd : fcntl(fd, F_NOTIFY, 0x80000000 | 1), a[0]);
}

static void act_fanotify(char **a, int n)
{
	(void)n;
	int fd = syscall(SYS_fanotify_init, 0x200, O_RDONLY); // FAN_REPORT_FID: for ordinary users
	if (fd < 0)
		return tell(fd, "fanotify_init");
	tell(syscall(SYS_fanotify_mark, fd, 1, 0x20ULL, AT_FDCWD, a[0]), a[0]); // FAN_MARK_ADD, FAN_OPEN
}

static void act_chdir(char **a, int n) { (void)n; tell(chdir(a[0]), a[0]); }

static void act_exec(char **a, int n)
{
	(void)n;
	long r = execve(a[0], a, (char *[]){ NULL });
	tell(r, a[0]);
}

const action file_actions[] = {
	{ "read", 1, act_read, 0 }, { "opath", 1, act_opath, 0 }, { "ls", 1, act_ls, 0 },
	{ "write", 1, act_write, 0 }, { "append", 1, act_append, 0 }, { "rdwr", 1, act_rdwr, 0 },
	{ "wopen", 1, act_wopen, 0 }, { "otrunc", 1, act_otrunc, 0 }, { "rdtrunc", 1, act_rdtrunc, 0 }, { "create", 1, act_create, 0 }, { "make", 1, act_make, 0 },
	{ "creat", 1, act_creat, 0 }, { "openat2", 1, act_openat2, 0 }, { "tmpfile", 2, act_tmpfile, 0 },
	{ "truncate", 1, act_truncate, 0 }, { "unlink", 1, act_unlink, 0 }, { "rmdir", 1, act_rmdir, 0 },
	{ "mkdir", 1, act_mkdir, 0 }, { "symlink", 2, act_symlink, 0 }, { "link", 2, act_link, 0 },
	{ "linkfd", 2, act_linkfd, 0 }, { "rename", 2, act_rename, 0 }, { "exchange", 2, act_exchange, 0 },
	{ "mknod", 2, act_mknod, 0 }, { "stat", 1, act_stat, 0 }, { "statx", 1, act_statx, 0 },
	{ "access", 1, act_access, 0 }, { "statfs", 1, act_statfs, 0 }, { "readlink", 1, act_readlink, 0 },
	{ "chmod", 2, act_chmod, 0 }, { "chown", 2, act_chown, 0 }, { "utimens", 1, act_utimens, 0 },
	{ "xattr", 1, act_xattr, 0 }, { "getxattr", 1, act_getxattr, 0 }, { "setflags", 1, act_setflags, 0 },
	{ "inotify", 1, act_inotify, 0 }, { "dnotify", 1, act_dnotify, 0 }, { "fanotify", 1, act_fanotify, 0 },
	{ "chdir", 1, act_chdir, 0 }, { "exec", 1, act_exec, 0 }, { NULL, 0, NULL, 0 },
};
