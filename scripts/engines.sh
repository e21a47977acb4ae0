#!/usr/bin/env bash
# Usage: scripts/engines.sh COMMAND [ARGUMENT…]
#
# Installs Docker and Podman from Debian's packages, starts a private engine of
# each, and runs COMMAND with
#
#   RINGFENCE_TEST_DOCKER   the API socket of a dockerd that is ours alone
#   RINGFENCE_TEST_PODMAN   the same of a podman
#   RINGFENCE_TEST_IMAGE    an image that both have: a static busybox
#
# Data, sockets and pid files are in one temporary directory; nothing of an engine
# that this machine already has is touched, and neither is its network. Engines
# that are set already are used as they are. What is started here ends with
# COMMAND, or when this script is killed; what was left all the same is removed by
# the next run.
#
# What cannot be started is named, and its suites are skipped; with CI=true it is
# an error. Needs root.
set -euo pipefail

image=localhost/ringfence-test:1
missing=()

# apt PACKAGE… installs Debian packages where it may.
apt() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	echo "engines: installing $*" >&2
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get -q update && apt-get -qy install --no-install-recommends "$@"; } >&2
}

# install_missing installs the packages of what is not there.
install_missing() {
	local want=()
	[ -x /usr/sbin/dockerd ] || want+=(docker.io)
	[ -x /usr/bin/podman ] || want+=(podman runc)
	[ -x /usr/libexec/podman/catatonit ] || want+=(catatonit)
	busybox >/dev/null || want+=(busybox-static)
	command -v setpriv >/dev/null || want+=(util-linux)
	[ ${#want[@]} = 0 ] || apt "${want[@]}" || true
}

# busybox prints the path of a static one.
busybox() {
	local b
	for b in /bin/busybox /usr/bin/busybox; do
		if [ -x "$b" ] && ! ldd "$b" >/dev/null 2>&1; then
			echo "$b"
			return
		fi
	done
	return 1
}

# until_there FILE waits for it, at most 60 seconds.
until_there() {
	local i
	for ((i = 0; i < 600; i++)); do
		[ -e "$1" ] && return
		sleep 0.1
	done
	echo "engines: $1 did not appear" >&2
	return 1
}

# under DIRECTORY prints the processes that were started with it among their
# arguments: engines, and what they started for containers.
under() {
	local p
	for p in /proc/[0-9]*; do
		p=${p#/proc/}
		if [ "$p" != $$ ] && tr '\0' '\n' 2>/dev/null <"/proc/$p/cmdline" | grep -qF -- "$1"; then
			echo "$p"
		fi
	done
}

# clear_away DIRECTORY ends what runs there, unmounts and removes it.
clear_away() {
	local dir=$1 i p m
	for ((i = 0; i < 100; i++)); do
		local left
		left=$(under "$dir/")
		[ -n "$left" ] || break
		for p in $left; do
			if [ "$i" -lt 50 ]; then kill -TERM "$p" 2>/dev/null || true; else kill -KILL "$p" 2>/dev/null || true; fi
		done
		sleep 0.1
	done
	awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do
		umount -l "$m" || true
	done
	rm -rf --one-file-system "$dir"
}

# clear_stale removes what runs that were killed have left.
clear_stale() {
	local dir owner
	for dir in "${TMPDIR:-/tmp}"/ringfence-engines.*; do
		if [ -f "$dir/owner" ] && [ -O "$dir/owner" ] && read -r owner <"$dir/owner" && [ ! -d "/proc/$owner" ]; then
			clear_away "$dir"
		fi
	done
}

# root_archive writes the image's files to $dir/root.tar.
root_archive() {
	local root=$dir/root b applet
	b=$(busybox) || return 1
	mkdir -p "$root"/{bin,etc,tmp,proc,dev,sys,root,var}
	cp "$b" "$root/bin/busybox"
	for applet in $("$b" --list); do
		[ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
	done
	chmod 1777 "$root/tmp"
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	tar -C "$root" -cf "$dir/root.tar" .
}

# What an image can bring along uninvited: a variable and a volume.
changes=(--change 'ENV FROM_IMAGE=1' --change 'VOLUME /data' --change 'ENTRYPOINT ["/bin/false"]')

start_docker() {
	[ -x /usr/sbin/dockerd ] || return 1
	setpriv --pdeathsig TERM /usr/sbin/dockerd --data-root "$dir/docker" --exec-root "$dir/docker-run" \
		--pidfile "$dir/docker.pid" -H "unix://$dir/docker.sock" --bridge none --iptables=false --ip6tables=false \
		--ip-forward=false --ip-masq=false --userland-proxy=false >"$dir/docker.log" 2>&1 &
	until_there "$dir/docker.sock" || { tail -n 20 "$dir/docker.log" >&2; return 1; }
	/usr/bin/docker -H "unix://$dir/docker.sock" import "${changes[@]}" "$dir/root.tar" "$image" >/dev/null
}

start_podman() {
	[ -x /usr/bin/podman ] || return 1
	local podman=(/usr/bin/podman --root "$dir/podman" --runroot "$dir/podman-run" --tmpdir "$dir/podman-tmp"
		--cgroup-manager cgroupfs --events-backend file)
	"${podman[@]}" import "${changes[@]}" "$dir/root.tar" "$image" >"$dir/podman.log" 2>&1 || { cat "$dir/podman.log" >&2; return 1; }
	setpriv --pdeathsig TERM "${podman[@]}" system service --time 0 "unix://$dir/podman.sock" >>"$dir/podman.log" 2>&1 &
	until_there "$dir/podman.sock" || { tail -n 20 "$dir/podman.log" >&2; return 1; }
}

warn() {
	[ ${#missing[@]} -gt 0 ] || return 0
	{
		echo "=================================================================="
		echo "The suites of containers are SKIPPED for what is missing:"
		printf '  - %s\n' "${missing[@]}"
		echo "=================================================================="
	} >&2
}

if [ -z "${RINGFENCE_TEST_DOCKER:-}" ] || [ -z "${RINGFENCE_TEST_PODMAN:-}" ]; then
	if [ "$(id -u)" != 0 ]; then
		missing+=("engines of our own, which only root can start")
	else
		clear_stale
		install_missing
		dir=$(mktemp -d "${TMPDIR:-/tmp}/ringfence-engines.XXXXXX")
		echo $$ >"$dir/owner"
		trap 'clear_away "$dir"' EXIT
		trap 'exit 143' TERM INT HUP
		if root_archive; then
			export RINGFENCE_TEST_IMAGE=$image
			if [ -n "${RINGFENCE_TEST_DOCKER:-}" ]; then :; elif start_docker; then
				export RINGFENCE_TEST_DOCKER=$dir/docker.sock
			else missing+=("dockerd (on Debian: apt-get install docker.io)"); fi
			if [ -n "${RINGFENCE_TEST_PODMAN:-}" ]; then :; elif start_podman; then
				export RINGFENCE_TEST_PODMAN=$dir/podman.sock
			else missing+=("podman (on Debian: apt-get install podman runc catatonit)"); fi
		else
			missing+=("a static busybox (on Debian: apt-get install busybox-static)")
		fi
	fi
fi
warn
if [ "${CI:-}" = true ] && [ ${#missing[@]} -gt 0 ]; then
	echo "engines: CI=true, and a skipped suite is a failure" >&2
	exit 1
fi

# In the background, so that a signal to this script is not kept waiting.
"$@" <&0 &
command=$!
status=0
wait "$command" || status=$?
if [ "$status" -gt 128 ] && kill -0 "$command" 2>/dev/null; then
	kill -TERM "$command" 2>/dev/null || true
fi
warn
exit "$status"
