package seatbelt

import "path"

// base is what every program of macOS needs to start. The order is as it must be: what
// tells of other processes is denied before it is allowed for the box's own.
//
// Not in it, and so denied: launching applications, Apple events, the clipboard, the
// keychain, preferences, jobs of launchd, devices, task ports, hard links and clones
// (a second name of a file has a path of its own), and the trust service, which fetches
// what a certificate names.
const base = `(version 1)
(deny default)
(deny file-link file-clone)

; processes
(allow process-fork)
(deny process-info*)
(allow process-info* (target same-sandbox))
(deny signal)
(allow signal (target same-sandbox))

; the machine, and not who uses it and for what
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.bootargs")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.iossupportversion")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.ngroups")
  (sysctl-name "kern.osproductversion")
  (sysctl-name "kern.osrelease")
  (sysctl-name "kern.ostype")
  (sysctl-name "kern.osvariant_status")
  (sysctl-name "kern.osversion")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "security.mac.lockdown_mode_state")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg"))

; services: who a user is, and the log
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.logger"))

; the dynamic linker looks at the root directory
(allow file-read* file-test-existence (literal "/"))

; devices
(allow file-read* file-test-existence
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/random")
  (literal "/dev/urandom")
  (literal "/dev/tty")
  (literal "/dev/stdin")
  (literal "/dev/stdout")
  (literal "/dev/stderr")
  (literal "/dev/autofs_nowait")
  (subpath "/dev/fd"))
(allow file-write-data
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/stdout")
  (literal "/dev/stderr")
  (subpath "/dev/fd"))
(allow file-ioctl (literal "/dev/null") (literal "/dev/tty") (literal "/dev/dtracehelper"))
`

// wide is for agents and servers. A named semaphore is seen by the whole machine; there
// are runtimes that do not start without (multiprocessing of Python). Of terminals only
// those can be opened that the box itself has made.
const wide = `
; agents and servers
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
`

// openNetwork is the network of the machine. Unix sockets stay closed, but for that of
// the resolver: behind them are services that act for whoever asks.
const openNetwork = `(allow network-outbound (remote ip))
(allow network-inbound (local ip))
(allow network-bind (local ip))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
(allow file-read* file-test-existence
  (literal "/private/etc/hosts")
  (literal "/private/etc/resolv.conf")
  (literal "/private/var/run/resolv.conf"))
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.trustd.agent"))
`

// programs are trees of programs, libraries and their data, with no settings of people
// in them.
var programs = [...]string{
	"/System/Library", "/System/iOSSupport", "/System/Cryptexes", "/System/Volumes/Preboot/Cryptexes",
	"/Library/Apple", "/Library/Frameworks", "/Library/Developer/CommandLineTools",
	"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share",
	"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/local/libexec", "/usr/local/share", "/usr/local/include",
	"/usr/local/Cellar", "/usr/local/opt", "/usr/local/Frameworks",
	"/opt/homebrew/bin", "/opt/homebrew/sbin", "/opt/homebrew/lib", "/opt/homebrew/libexec", "/opt/homebrew/share",
	"/opt/homebrew/include", "/opt/homebrew/Cellar", "/opt/homebrew/opt", "/opt/homebrew/Frameworks",
	"/nix/store",
}

// settings are files of the system that programs read as they start. The accounts of
// the machine are not among them.
var settings = [...]string{
	"/private/etc/localtime", "/private/etc/protocols", "/private/etc/services", "/private/etc/shells",
	"/private/etc/paths", "/private/etc/paths.d", "/private/etc/manpaths", "/private/etc/manpaths.d",
	"/private/etc/profile", "/private/etc/bashrc", "/private/etc/zshenv", "/private/etc/zprofile", "/private/etc/zshrc",
	"/private/etc/ssl/cert.pem", "/private/etc/ssl/certs", "/private/etc/ssl/openssl.cnf",
	"/usr/local/etc/openssl@3", "/usr/local/etc/ca-certificates",
	"/opt/homebrew/etc/openssl@3", "/opt/homebrew/etc/ca-certificates",
	"/private/var/db/dyld", "/private/var/db/timezone", "/private/var/select",
}

// Canary is a file that each user can read and no profile of ours allows: who is under
// one cannot open it.
const Canary = "/private/etc/passwd"

// system writes what every box has of the system.
func (w *writer) system() {
	way := map[string]bool{}
	add := func(filters []string, tree string) []string {
		for d := path.Dir(tree); d != "/"; d = path.Dir(d) {
			way[d] = true
		}
		return append(filters, "(subpath "+w.str(tree)+")")
	}
	var code, data, stat []string
	for _, p := range programs {
		code = add(code, p)
	}
	for _, p := range settings {
		data = add(data, p)
	}
	for _, l := range links {
		way[l[1]] = true
	}
	way["/dev"] = true
	for _, d := range sortedKeys(way) {
		stat = append(stat, "(literal "+w.str(d)+")")
	}
	w.out.WriteString("\n; the system\n")
	w.rule("allow", reading, code...)
	w.rule("allow", "file-read* file-test-existence", data...)
	w.rule("allow", "file-read-metadata file-test-existence", stat...)
}
