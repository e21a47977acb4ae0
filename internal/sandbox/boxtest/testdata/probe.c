// The probe is the hostile program of the suite. It runs in a box, does what it is
// told, and prints what the kernel answered. It needs nothing of its surroundings:
// it is static, reads no file, and fits in 16 MiB.
//
//	probe ACTION ARGUMENT… [, ACTION ARGUMENT…]…
//
// Each action prints at least one line:
//
//	STEP <tab> ANSWER <tab> ACTION <tab> DETAIL
//
// STEP counts the actions from 1.
// ANSWER is "ok", the name of an errno, or "SIG…" if the attempt was killed; some
// actions answer with a word or a number of their own. With "~" before its name an
// action only prepares another.
//
// Actions run in a child each, with a time limit, so that one which is killed does
// not hide the next.
#include "probe.h"
#include <stdarg.h>

static const char *doing = "probe";
static int step;
static int said;

static void put_line(const char *answer, const char *detail)
{
	char line[4096], count[16];
	size_t n = 0;
	snprintf(count, sizeof count, "%d", step);
	const char *parts[] = { count, "\t", answer, "\t", doing, "\t", detail };
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (const char *p = parts[i]; *p && n + 5 < sizeof line; p++) {
			unsigned char c = *p;
			if ((c < 32 || c > 126 || c == '\\') && !(c == '\t' && i % 2 == 1))
				n += sprintf(line + n, "\\x%02x", c);
			else
				line[n++] = c;
		}
	line[n++] = '\n';
	said = 1;
	for (size_t done = 0; done < n;) {
		ssize_t w = write(1, line + done, n - done);
		if (w < 0 && errno != EINTR)
			_exit(120);
		done += w > 0 ? w : 0;
	}
}

void say(const char *answer, const char *format, ...)
{
	char detail[2048];
	va_list list;
	va_start(list, format);
	vsnprintf(detail, sizeof detail, format, list);
	va_end(list);
	put_line(answer, detail);
}

static const char *errno_name(int e)
{
	static char unknown[16];
	const char *name = strerrorname_np(e);
	if (!name)
		snprintf(unknown, sizeof unknown, "E%d", e), name = unknown;
	return name;
}

void tell(long result, const char *what)
{
	say(result < 0 ? errno_name(errno) : "ok", "%s", what);
}

void tell_fd(long fd, const char *what)
{
	tell(fd, what);
	if (fd >= 0)
		close(fd);
}

void show(const void *bytes, long n, const char *what)
{
	if (n < 0) {
		tell(n, what);
		return;
	}
	say("ok", "%s: %.*s", what, (int)(n > 200 ? 200 : n), (const char *)bytes);
}

long must(long result, const char *what)
{
	if (result < 0) {
		say(errno_name(errno), "preparing: %s", what);
		_exit(121);
	}
	return result;
}

static long parse(const char *text, int base)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, base);
	if (errno || *end || end == text) {
		say("usage", "%s is no number", text);
		_exit(122);
	}
	return n;
}

long number(const char *text) { return parse(text, 0); }
long octal(const char *text) { return parse(text, 8); }

static const action *find(const char *name)
{
	const action *const tables[] = { file_actions, trick_actions, process_actions, kernel_actions, socket_actions, load_actions, harmless_actions };
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		for (const action *a = tables[i]; a->name; a++)
			if (!strcmp(a->name, name))
				return a;
	say("usage", "no action %s", name);
	exit(122);
}

// apart runs an action in a child, and says how that died if it did.
static void apart(const action *a, char **args, int n)
{
	pid_t pid = fork();
	if (pid < 0) {
		tell(-1, "fork");
		return;
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(30);
		said = 0;
		a->run(args, n);
		_exit(said ? 0 : 123);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return tell(-1, "waitpid");
	if (WIFSIGNALED(status)) {
		char name[32];
		const char *short_name = sigabbrev_np(WTERMSIG(status));
		snprintf(name, sizeof name, "SIG%s", short_name ? short_name : "?");
		say(name, "killed");
	} else if (WEXITSTATUS(status) == 123) {
		say("silent", "status %d", WEXITSTATUS(status));
	} else if (WEXITSTATUS(status) > 123) {
		say("ended", "status %d", WEXITSTATUS(status));
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "world")) {
		world(argv + 2, argc - 2);
		return 0;
	}
	for (int i = 1; i < argc;) {
		int end = i + 1;
		while (end < argc && strcmp(argv[end], ","))
			end++;
		doing = argv[i] + (argv[i][0] == '~');
		step++;
		const action *a = find(doing);
		int n = end - i - 1;
		if (n < a->min) {
			say("usage", "%d arguments, at least %d", n, a->min);
			return 122;
		}
		argv[end < argc ? end : argc] = NULL;
		if (a->raw)
			a->run(argv + i + 1, n);
		else
			apart(a, argv + i + 1, n);
		i = end + 1;
	}
	return 0;
}
