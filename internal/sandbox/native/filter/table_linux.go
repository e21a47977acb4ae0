package filter

const whatLandlockLeaves = "Landlock does not hold back what changes modes, owners, times and attributes: only read-only mounts do"

// performed is why a program may do what Landlock leaves, where nothing but Landlock holds.
const performed = "pid 1 performs it in the writable trees, and nowhere else"

// groups is the table. Its order counts, see group.
//
// What decides between EPERM, ENOSYS and killing: EPERM where a person or a model
// reads the message of a tool that asked for something it may not do; ENOSYS where
// libraries look whether a kernel has something and do without; killing where
// nothing but an attack, or an administrator's tool that has no business here, would
// make the call, so that the attempt is seen from outside (SIGSYS) and stops there.
var groups = []group{
	{
		name: "memory", reason: "the memory of the process itself",
		calls: "brk mmap munmap mremap mprotect madvise msync mincore",
	},
	{
		name: "threads", reason: "threads of the process, and how they wait for each other",
		calls: `futex futex_wait futex_waitv futex_wake futex_requeue get_robust_list set_robust_list
			set_tid_address gettid tgkill tkill sched_yield sched_getaffinity getcpu membarrier rseq rseq_slice_yield
			restart_syscall exit exit_group`,
	},
	{
		name: "probes", reason: "the kernel's own trampolines, when the host traces the program; elsewhere they end it",
		calls: "uprobe uretprobe",
	},
	{
		name: "signals", reason: "signals, which reach what the PID namespace or Landlock's scope lets them reach",
		calls: `rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigreturn rt_sigqueueinfo
			rt_tgsigqueueinfo sigaltstack kill pause signalfd signalfd4 pidfd_open pidfd_send_signal`,
	},
	{
		name: "clocks", reason: "reading clocks, waiting, timers of the process",
		calls: `clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times alarm getitimer setitimer
			timer_create timer_settime timer_gettime timer_getoverrun timer_delete
			timerfd_create timerfd_settime timerfd_gettime`,
	},
	{
		name: "who and where", reason: "what the process is and what it may use, read only",
		calls: `getpid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid capget
			uname sysinfo getrusage getrlimit getpriority ioprio_get sched_getattr sched_getparam sched_getscheduler
			sched_get_priority_max sched_get_priority_min sched_rr_get_interval getrandom`,
	},
	{
		name: "descriptors", reason: "reading, writing and waiting on what is open",
		calls: `read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range dup dup2 dup3
			lseek pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
			epoll_pwait2 eventfd eventfd2 flock`,
	},
	{
		name: "descriptors", reason: "flags and locks; a lease would keep the programs of the host from the file, and a notice tell of them",
		check: control, calls: "fcntl",
	},
	{
		name: "looking at files", reason: "names, metadata and directories, within what mounts and Landlock show",
		calls: `stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64
			statfs fstatfs getcwd chdir fchdir`,
	},
	{
		name: "extended attributes", reason: "reading those of what is open",
		when: program, otherwise: refused,
		calls: "fgetxattr flistxattr",
	},
	{
		name: "extended attributes by name", reason: "reading them; Landlock does not hold it back, only what is not mounted has none",
		when: program | namespaces, otherwise: noAttribute,
		calls: "getxattr lgetxattr getxattrat listxattr llistxattr listxattrat",
	},
	{
		name: "contents", reason: "copying, allocating and flushing what is open",
		when: program, otherwise: refused,
		calls: `sendfile splice copy_file_range fadvise64 readahead sync_file_range fsync fdatasync sync syncfs
			fallocate ftruncate`,
	},
	{name: "opening", reason: "files, within what mounts and Landlock let through", check: opening(1, 2), calls: "open"},
	{name: "opening", reason: "files, within what mounts and Landlock let through", check: opening(2, 3), calls: "openat"},
	{
		name: "opening", reason: "files, within what mounts and Landlock let through",
		check: modes(1), calls: "creat",
	},
	{
		name: "opening by structure", reason: "its flags and mode are in memory, where no filter can check them; callers use openat",
		when: pidOne, otherwise: newer, calls: "openat2",
	},
	{
		name: "names", reason: "making, removing and renaming, within what mounts, Landlock and the supervisor let through",
		check: held,
		calls: `mkdir mkdirat link linkat symlink symlinkat rename renameat renameat2 unlink unlinkat rmdir`,
	},
	{name: "nodes", reason: "files, pipes and sockets by name; never devices", check: nodes(1), calls: "mknod"},
	{name: "nodes", reason: "files, pipes and sockets by name; never devices", check: nodes(2), calls: "mknodat"},
	{
		name: "truncating by name", reason: "within what mounts and Landlock let through",
		check: held, calls: "truncate",
	},
	{name: "mode of what is made", reason: "the supervisor makes files in the program's place and needs it", check: held, calls: "umask"},
	{
		name: "modes", reason: performed, when: program | bare | hold, otherwise: refused,
		check: modes(1), calls: "chmod fchmod",
	},
	{
		name: "modes", reason: performed, when: program | bare | hold, otherwise: refused,
		check: modes(2), calls: "fchmodat fchmodat2",
	},
	{
		name: "times", reason: performed, when: program | bare | hold, otherwise: refused,
		check: held, calls: "utimensat",
	},
	{
		name: "modes", reason: whatLandlockLeaves, when: program | namespaces, otherwise: refused,
		check: modes(1), calls: "chmod fchmod",
	},
	{
		name: "modes", reason: whatLandlockLeaves, when: program | namespaces, otherwise: refused,
		check: modes(2), calls: "fchmodat fchmodat2",
	},
	{
		name: "owners and times", reason: whatLandlockLeaves, when: program | namespaces, otherwise: refused,
		calls: "chown lchown fchown fchownat utime utimes futimesat utimensat",
	},
	{
		name: "setting extended attributes", reason: whatLandlockLeaves, when: program | namespaces, otherwise: noAttribute,
		check: check{clauses: []clause{{when: hold, then: noAttribute}}},
		calls: `setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat`,
	},
	{
		name: "performing", reason: "pid 1 of the box does what it was asked to, where the rules of held names allow it",
		when: pidOne, otherwise: refused, check: modes(1), calls: "chmod fchmod",
	},
	{
		name: "performing", reason: "pid 1 of the box does what it was asked to, where the rules of held names allow it",
		when: pidOne, otherwise: refused, check: modes(2), calls: "fchmodat fchmodat2",
	},
	{
		name: "performing", reason: "pid 1 of the box does what it was asked to, where the rules of held names allow it",
		when: pidOne, otherwise: refused, calls: "ftruncate utimensat",
	},
	{
		name: "processes", reason: "starting programs and waiting for them",
		when: program, otherwise: refused,
		calls: "fork vfork execve execveat setpgid setsid",
	},
	{name: "waiting", reason: "for children", calls: "wait4 waitid"},
	{
		name: "cloning", reason: "threads and processes, in the namespaces that there are",
		when: program, otherwise: refused,
		check: check{clauses: []clause{{tests: []test{has(0, cloneRefused)}, then: refused}}, text: "no CLONE_NEW*, no CLONE_UNTRACED"},
		calls: "clone",
	},
	{
		name: "cloning", reason: "pid 1 of the box makes threads, and no process once the program runs",
		when: pidOne, otherwise: refused,
		check: check{
			clauses:   []clause{{tests: []test{has(0, cloneNamespaces)}, then: refused}, {tests: []test{has(0, cloneThread)}, then: allow}},
			otherwise: refused, text: "CLONE_THREAD only",
		},
		calls: "clone",
	},
	{
		name: "cloning by structure", reason: "its flags are in memory, where no filter can check them; C libraries use clone",
		when: never, otherwise: newer, calls: "clone3",
	},
	{
		name: "limits", reason: "hard limits can only be lowered",
		when: program, otherwise: refused, calls: "setrlimit",
	},
	{
		name: "limits", reason: "hard limits can only be lowered; those of other processes, of which pid 1 is one, are read where all are in the box",
		when: program, otherwise: refused,
		check: check{
			clauses:   []clause{{tests: []test{is(0, 0)}, then: allow}, {when: namespaces, tests: null(2), then: allow}},
			otherwise: refused, text: "own process only; with namespaces others may be read",
		},
		calls: "prlimit64",
	},
	{
		name: "niceness", reason: "priorities and processors of processes of the same user, all of which are in the box",
		when: program | namespaces, otherwise: refused, calls: "setpriority sched_setaffinity",
	},
	{
		name: "scheduling", reason: "data bases and language runtimes adjust their threads; real-time needs a limit that boxes do not have",
		when: program | namespaces | agent, otherwise: refused,
		calls: "sched_setparam sched_setscheduler sched_setattr ioprio_set",
	},
	{
		name: "users and groups", reason: "no process in a box has a capability, and none comes by set-user-ID: only what it already is can be set",
		when: program, otherwise: refused,
		calls: "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset",
	},
	{name: "process settings", reason: "names, death signals, dumps and what only tightens", check: processSettings, calls: "prctl"},
	{name: "processor settings", reason: "thread pointers, vector state, shadow stacks", check: processorSettings, calls: "arch_prctl"},
	{
		name: "personality", reason: "reading it, the usual one, and fixed addresses for debugging",
		when: program, otherwise: refused,
		check: check{clauses: []clause{{tests: []test{is(0, 0, addrNoRandomize, personalityQuery)}, then: allow}}, otherwise: refused, text: "0, ADDR_NO_RANDOMIZE, or the query"},
		calls: "personality",
	},
	{
		name: "filters of its own", reason: "a program may confine itself further (browsers, file, man); a listener of its own would compete with ours",
		when: program, otherwise: refused,
		check: check{clauses: []clause{{tests: []test{is(0, seccompSetFilter), has(1, seccompNewListener)}, then: refused}}, text: "no new listener"},
		calls: "seccomp",
	},
	{
		name: "rules of its own", reason: "agents confine their own tools; Landlock only tightens",
		when: program | agent, otherwise: newer,
		calls: "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
	},
	{
		name: "devices and terminals", reason: "terminals, queues and copies; no input pushed into a terminal, no consoles, no line disciplines",
		when: program, otherwise: refused,
		check: deviceControls, calls: "ioctl",
	},
	{
		name: "devices and terminals", reason: "notifications of held names",
		when: pidOne, otherwise: refused,
		check: noticeControls, calls: "ioctl",
	},
	{
		name: "reading arguments", reason: "pid 1 of the box reads the names in notifications",
		when: pidOne, otherwise: refused, calls: "process_vm_readv",
	},
	{name: "making sockets", reason: "the families that the box was made for, in their plain protocols", when: program, otherwise: refused, check: makingSockets, calls: "socket"},
	{name: "making socket pairs", reason: "connected pairs; a datagram pair can be connected elsewhere later", when: program, otherwise: refused, check: makingPairs, calls: "socketpair"},
	{
		name: "using sockets", reason: "channels that are open or were inherited",
		when: program, otherwise: refused,
		calls: "sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname getpeername getsockopt",
	},
	{
		name: "socket options", reason: "what sockets of these families take, but no programs for the kernel and no protocols on top",
		when: program, otherwise: refused, check: socketOptions, calls: "setsockopt",
	},
	{
		name: "connecting", reason: "only where sockets can be made at all; the supervisor tells the box's own from the host's, by what they are and not by name",
		when: program | anySocket, otherwise: refused, check: heldCalls, calls: "connect bind",
	},
	{
		name: "listening", reason: "only where sockets can be made at all",
		when: program | anySocket, otherwise: refused, calls: "listen accept accept4",
	},
	{
		name: "connecting for programs", reason: "pid 1 of the box connects and binds the sockets of programs, in their place",
		when: pidOne | heldSockets, otherwise: refused, calls: "connect bind getsockopt pidfd_getfd",
	},
	{
		name: "connecting for programs", reason: "pid 1 of the box connects and binds the sockets of programs, in their place",
		when: pidOne | heldSockets, otherwise: refused, check: timeouts, calls: "setsockopt",
	},
	{
		name: "memory for agents", reason: "data bases and just-in-time compilers: files in memory, locked memory, protection keys, shadow stacks",
		when: program | agent, otherwise: newer,
		calls: `memfd_create mlock mlock2 munlock mlockall munlockall pkey_mprotect pkey_alloc pkey_free mseal
			map_shadow_stack`,
	},
	{
		name: "shared memory and queues", reason: "data bases; by key or name, so within an IPC namespace only",
		when: program | agent | namespaces, otherwise: refused,
		calls: `shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
			mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`,
	},
	{
		name: "watching files", reason: "builds and servers that start again on changes; Landlock does not hold it back, so within a mount namespace only",
		when: program | agent | namespaces, otherwise: newer,
		calls: "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
	},
	{
		name: "asynchronous input and output", reason: "the machine has one count of requests for all (fs.aio-max-nr), which one box could use up; data bases do without",
		when: never, otherwise: newer,
		calls: "io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy",
	},
	{
		name: "pipes between pages", reason: "tools that move much data",
		when: program | agent, otherwise: newer, calls: "tee vmsplice",
	},
	{
		name: "new namespaces", reason: "they give capabilities over the kernel's least tested parts, and a view that the box did not make",
		when: never, otherwise: refused, calls: "unshare setns",
	},
	{
		name: "mounting", reason: "the view of the box is made before its program starts; refused, not killed: container tools in a box should say why they fail",
		when: never, otherwise: refused,
		calls: `mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr
			mount_setattr`,
	},
	{
		name: "going on", reason: "pid 1 of a box without namespaces traces what is in it, so that nothing outlives it",
		when: pidOne | tracing, otherwise: refused, check: goingOn, calls: "ptrace",
	},
	{
		name: "other processes", reason: "debuggers and tracers read and change what other processes hold; they are legitimate and not for boxes",
		when: never, otherwise: refused,
		calls: "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease",
	},
	{
		name: "programs for the kernel", reason: "code and counters that run in the kernel: the way of most exploits",
		when: never, otherwise: refused, calls: "bpf perf_event_open userfaultfd",
	},
	{
		name: "rings", reason: "io_uring makes calls that no filter sees; libraries use the plain calls",
		when: never, otherwise: newer, calls: "io_uring_setup io_uring_enter io_uring_register",
	},
	{
		name: "keys", reason: "key rings are the user's, not the box's",
		when: never, otherwise: refused, calls: "add_key request_key keyctl",
	},
	{
		name: "file handles", reason: "they open files past every directory",
		when: never, otherwise: refused, calls: "open_by_handle_at name_to_handle_at",
	},
	{
		name: "watching file systems", reason: "fanotify sees what others do on a whole mount",
		when: never, otherwise: refused, calls: "fanotify_init fanotify_mark",
	},
	{
		name: "memory of other nodes", reason: "placing memory on processors, as in containers: programs go on without",
		when: never, otherwise: refused,
		calls: "mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node",
	},
	{
		name: "segments", reason: "descriptors of 16-bit code: nothing of today needs them, many exploits do",
		when: never, otherwise: refused, calls: "modify_ldt",
	},
	{
		name: "the machine's clock and name", reason: "they are the host's",
		when: never, otherwise: refused,
		calls: "settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname",
	},
	{
		name: "administration", reason: "accounts, quotas, logs and terminals of the host",
		when: never, otherwise: refused, calls: "acct quotactl quotactl_fd syslog vhangup",
	},
	{
		name: "the machine", reason: "modules, another kernel, restarting, swap, ports: no tool tries these unasked",
		when: never, otherwise: kill,
		calls: `init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff iopl ioperm`,
	},
	{
		name: "not needed yet", reason: "newer calls that libraries do without; each is a part of the kernel less to trust",
		when: never, otherwise: newer,
		calls: `memfd_secret cachestat statmount listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules
			file_getattr file_setattr`,
	},
	{
		name: "gone", reason: "kernels of today do not have them, or only for programs of long ago",
		when: never, otherwise: newer,
		calls: `uselib _sysctl sysfs ustat lookup_dcookie nfsservctl getpmsg putpmsg afs_syscall tuxcall security vserver
			epoll_ctl_old epoll_wait_old create_module get_kernel_syms query_module remap_file_pages
			set_thread_area get_thread_area`,
	},
}
