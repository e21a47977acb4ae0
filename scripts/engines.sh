#!/usr/bin/env bash
# Usage: scripts/engines.sh COMMAND [ARGUMENT…]
#
# Installs Docker and Podman from Debian's packages, starts a private engine of
# each, and runs COMMAND with
#
#   RINGFENCE_TEST_DOCKER   the API socket of a dockerd that is ours alone
#   RINGFENCE_TEST_PODMAN   the same of a podman
#   RINGFENCE_TEST_IMAGE    an image that both have: a static busybox
#   RINGFENCE_TEST_DEBIAN   another: Debian, with the programs of honest work
#   RINGFENCE_TEST_ROOTLESS_DOCKER, …_PODMAN   the same of two that have no rights of root
#   RINGFENCE_TEST_ROOTLESS_USER               the number of the user whose they are
#
# Data, sockets and pid files are in one temporary directory; nothing of an engine
# that this machine already has is touched, and neither is its network. Engines
# that are set already are used as they are, with the images that are set. What is
# started here ends with COMMAND, or when this script is killed; what was left all
# the same is removed by the next run. The files of the Debian image are made by
# debootstrap once (a minute or two, 0.7 GB) and kept in
# ${XDG_CACHE_HOME:-~/.cache}/ringfence-tests.
#
# What cannot be started is named, and its suites are skipped; with CI=true it is
# an error. Needs root.
set -euo pipefail

image=localhost/ringfence-test:1
debian=localhost/ringfence-debian:1
missing=()

# What is in the Debian image. The suite, because cases name versions.
suite=bookworm
packages=bash,bsdutils,gcc,git,golang-go,libc6-dev,make,nodejs,perl,postgresql-15,python3,sqlite3,tmux

# What is taken out of it: documents, and parts of compilers that no case runs.
without=(
	'dev/*' 'var/cache/apt/*' 'var/lib/apt/lists/*' 'var/lib/postgresql/*' 'var/log/*'
	usr/share/doc usr/share/i18n usr/share/info usr/share/locale usr/share/man
	'usr/bin/*-lto-dump-*' 'usr/lib/gcc/*/*/lto1' 'usr/lib/*/libLLVM-*' 'usr/lib/*/libz3.so*'
	'usr/lib/go-*/pkg/linux_*/cmd' 'usr/share/go-*/api' 'usr/share/go-*/misc' 'usr/share/go-*/src/cmd' 'usr/share/go-*/test'
)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ringfence-tests

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
	command -v newuidmap >/dev/null || want+=(uidmap)
	command -v rootlesskit >/dev/null || want+=(rootlesskit)
	command -v slirp4netns >/dev/null || want+=(slirp4netns)
	busybox >/dev/null || want+=(busybox-static)
	command -v setpriv >/dev/null || want+=(util-linux)
	[ -e "$(debian_archive)" ] || command -v debootstrap >/dev/null || want+=(debootstrap)
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
	# What holds the namespaces of a Podman without root has no argument to know it by.
	if p=$(cat "$dir/r/run/libpod/tmp/pause.pid" 2>/dev/null) && [ -n "$p" ] &&
		[ "$(awk '$1 == "Uid:" {print $2}' "/proc/$p/status" 2>/dev/null)" = "$rootless" ]; then
		kill -KILL "$p" 2>/dev/null || true
	fi
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
	for dir in "${TMPDIR:-/tmp}"/rf-engines.*; do
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

# debian_archive prints where the files of the Debian image are kept, by what is in it.
debian_archive() {
	echo "$cache/debian-$(echo "$suite $packages ${without[*]}" | cksum | tr ' ' -).tar"
}

# mirror prints where this machine has Debian's packages from.
mirror() {
	local m=
	if command -v apt-get >/dev/null; then
		# shellcheck disable=SC2016 # it is apt-get that fills this in
		m=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" 'Component: main' 2>/dev/null | head -n 1)
	fi
	echo "${m:-http://deb.debian.org/debian}"
}

# keep_debian makes the archive, if it is not there.
keep_debian() {
	local archive temp http_proxy=${http_proxy:-}
	archive=$(debian_archive)
	[ ! -e "$archive" ] || return 0
	command -v debootstrap >/dev/null || return 1
	echo "engines: making a Debian tree, which takes a minute or two" >&2
	eval "$(apt-config shell http_proxy Acquire::http::Proxy 2>/dev/null)"
	[ -z "$http_proxy" ] || export http_proxy
	if ! debootstrap --variant=minbase --include="$packages" "$suite" "$dir/tree" "$(mirror)" >"$dir/debootstrap.log" 2>&1; then
		tail -n 20 "$dir/debootstrap.log" >&2
		return 1
	fi
	mkdir -p "$cache"
	# What runs that were killed have left.
	find "$cache" -maxdepth 1 \( -name 'debian.????????' -o -name 'podman.????????' \) -mmin +60 -exec rm -rf --one-file-system {} +
	temp=$(mktemp "$cache/debian.XXXXXXXX")
	if ! tar -C "$dir/tree" -cf "$temp" "${without[@]/#/--exclude=./}" .; then
		rm -f "$temp"
		return 1
	fi
	chmod 644 "$temp"
	mv "$temp" "$archive"
	rm -rf --one-file-system "$dir/tree"
}

# podman_ speaks to our own Podman, or starts it under a command.
podman_() {
	"${under_podman[@]}" /usr/bin/podman --root "$dir/podman" --runroot "$dir/pr" --tmpdir "$dir/pt" \
		--cgroup-manager cgroupfs --events-backend file "${store[@]}" "$@"
}
under_podman=()
store=()

# keep_store makes, once, a store that Podman reads the Debian image from. To import
# it each time takes it half a minute.
keep_store() {
	local kept temp
	kept=$(debian_archive)
	kept=${kept%.tar}-podman
	if [ ! -e "$kept" ]; then
		temp=$(mktemp -d "$cache/podman.XXXXXXXX")
		if ! /usr/bin/podman --root "$temp" --runroot "$dir/sr" --tmpdir "$dir/st" --cgroup-manager cgroupfs \
			--events-backend file import "${changes[@]}" "$(debian_archive)" "$debian" >"$dir/store.log" 2>&1 || ! mv -T "$temp" "$kept"; then
			cat "$dir/store.log" >&2
			awk -v d="$temp/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$m" || true; done
			rm -rf --one-file-system "$temp"
		fi
	fi
	[ ! -e "$kept" ] || store=(--storage-opt "overlay.imagestore=$kept")
}

# has_debian reports whether all of our engines that have started have the image.
has_debian() {
	if [ -S "$dir/podman.sock" ] && ! podman_ image exists "$debian"; then return 1; fi
	[ ! -S "$dir/docker.sock" ] || docker_ image inspect "$debian" >/dev/null 2>&1
}

# What an image can bring along uninvited: a variable and a volume.
changes=(--change 'ENV FROM_IMAGE=1' --change 'VOLUME /data' --change 'ENTRYPOINT ["/bin/false"]')

docker_() { /usr/bin/docker -H "unix://$dir/docker.sock" "$@"; }

start_docker() {
	[ -x /usr/sbin/dockerd ] || return 1
	setpriv --pdeathsig TERM /usr/sbin/dockerd --data-root "$dir/docker" --exec-root "$dir/docker-run" \
		--pidfile "$dir/docker.pid" -H "unix://$dir/docker.sock" --bridge none --iptables=false --ip6tables=false \
		--ip-forward=false --ip-masq=false --userland-proxy=false >"$dir/docker.log" 2>&1 &
	until_there "$dir/docker.sock" || { tail -n 20 "$dir/docker.log" >&2; return 1; }
	docker_ import "${changes[@]}" "$dir/root.tar" "$image" >/dev/null || return 1
	if [ -e "$(debian_archive)" ]; then docker_ import "${changes[@]}" "$(debian_archive)" "$debian" >/dev/null; fi
}

start_podman() {
	[ -x /usr/bin/podman ] || return 1
	podman_ import "${changes[@]}" "$dir/root.tar" "$image" >"$dir/podman.log" 2>&1 || { cat "$dir/podman.log" >&2; return 1; }
	if [ -e "$(debian_archive)" ]; then keep_store; fi
	under_podman=(setpriv --pdeathsig TERM)
	# What watches over containers writes a file where it is when one is out of memory.
	{ cd "$dir" && podman_ system service --time 0 "unix://$dir/podman.sock"; } >>"$dir/podman.log" 2>&1 &
	under_podman=()
	until_there "$dir/podman.sock" || { tail -n 20 "$dir/podman.log" >&2; return 1; }
}

# Who has engines without the rights of root: a user whom this machine does not know,
# with as many ids more as such an engine takes.
rootless=61234
rootless_ids=1879048192:65536

# as_rootless COMMAND… runs it as that user. The files that make him known are seen by it
# alone: those of this machine stay as they are.
as_rootless() {
	# shellcheck disable=SC2016 # it is the other shell that fills this in
	unshare --mount --propagation slave sh -c '
		dir=$1 id=$2
		shift 2
		for f in passwd group subuid subgid; do mount --bind "$dir/r/$f" "/etc/$f"; done
		mount --bind "$dir/r/tun" /dev/net/tun
		exec setpriv --reuid "$id" --regid "$id" --clear-groups --pdeathsig TERM \
			env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$dir/r/home" XDG_RUNTIME_DIR="$dir/r/run" "$@"
	' sh "$dir" "$rootless" "$@"
}

# start_rootless starts both, with the small image. On version 1 of control groups they
# cannot limit anything, and say so.
start_rootless() {
	local d=$dir/r podman=(/usr/bin/podman --cgroup-manager cgroupfs --events-backend file)
	[ -e /etc/subuid ] && [ -e /etc/subgid ] && [ -x /usr/bin/podman ] && [ -x /usr/sbin/dockerd ] || return 1
	chmod 711 "$dir" # the sockets in it are closed themselves
	mkdir -p "$d/home" "$d/run"
	chown "$rootless:$rootless" "$d/home" "$d/run"
	chmod 700 "$d/home" "$d/run"
	# What makes networks for the user, where only root may on this machine.
	mknod -m 666 "$d/tun" c 10 200
	printf 'root:x:0:0:root:/root:/bin/sh\ntests:x:%s:%s:tests:%s:/bin/sh\n' "$rootless" "$rootless" "$d/home" >"$d/passwd"
	printf 'root:x:0:\ntests:x:%s:\n' "$rootless" >"$d/group"
	printf 'tests:%s\n' "$rootless_ids" | tee "$d/subuid" >"$d/subgid"
	as_rootless "${podman[@]}" import "${changes[@]}" "$dir/root.tar" "$image" >"$d/podman.log" 2>&1 || { tail -n 20 "$d/podman.log" >&2; return 1; }
	{ cd "$d/home" && as_rootless "${podman[@]}" system service --time 0 "unix://$d/run/p.sock"; } >>"$d/podman.log" 2>&1 &
	as_rootless sh /usr/share/docker.io/contrib/dockerd-rootless.sh --data-root "$d/home/docker" --storage-driver vfs \
		-H "unix://$d/run/d.sock" --bridge none --iptables=false --ip6tables=false >"$d/docker.log" 2>&1 &
	until_there "$d/run/p.sock" || { tail -n 20 "$d/podman.log" >&2; return 1; }
	until_there "$d/run/d.sock" || { tail -n 20 "$d/docker.log" >&2; return 1; }
	/usr/bin/docker -H "unix://$d/run/d.sock" import "${changes[@]}" "$dir/root.tar" "$image" >/dev/null || return 1
	export RINGFENCE_TEST_ROOTLESS_USER=$rootless RINGFENCE_TEST_ROOTLESS_PODMAN=$d/run/p.sock RINGFENCE_TEST_ROOTLESS_DOCKER=$d/run/d.sock
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
		# Podman takes no more than 50 characters for a part of this.
		dir=$(mktemp -d "${TMPDIR:-/tmp}/rf-engines.XXXXXX")
		echo $$ >"$dir/owner"
		trap 'clear_away "$dir"' EXIT
		trap 'exit 143' TERM INT HUP
		keep_debian || true
		if root_archive; then
			export RINGFENCE_TEST_IMAGE=$image
			if [ -n "${RINGFENCE_TEST_DOCKER:-}" ]; then :; elif start_docker; then
				export RINGFENCE_TEST_DOCKER=$dir/docker.sock
			else missing+=("dockerd (on Debian: apt-get install docker.io)"); fi
			if [ -n "${RINGFENCE_TEST_PODMAN:-}" ]; then :; elif start_podman; then
				export RINGFENCE_TEST_PODMAN=$dir/podman.sock
			else missing+=("podman (on Debian: apt-get install podman runc catatonit)"); fi
			if [ -n "${RINGFENCE_TEST_ROOTLESS_USER:-}" ]; then :; elif ! start_rootless; then
				missing+=("engines without the rights of root (on Debian: apt-get install uidmap rootlesskit slirp4netns)")
			fi
			if has_debian; then
				export RINGFENCE_TEST_DEBIAN=$debian
			else missing+=("an image of Debian, for honest work in containers (on Debian: apt-get install debootstrap; is the mirror in reach?)"); fi
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
