#!/usr/bin/env bash
# Usage: scripts/cover.sh PACKAGE…
#
# Fails, and names the lines, if the tests of a package leave one of its own
# statements out.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
status=0
for pkg in "$@"; do
	go test -coverprofile="$profile" "$pkg"
	# file:line.column,line.column statements count
	missed=$(awk 'NR > 1 && $3 == 0 {print $1}' "$profile" | sed 's/^ringfence\///; s/\.[0-9]*,/-/; s/\.[0-9]*$//' | sort -uV)
	if [ -n "$missed" ]; then
		printf 'cover: no test of %s runs:\n%s\n' "$pkg" "$missed" >&2
		status=1
	fi
done
exit "$status"
