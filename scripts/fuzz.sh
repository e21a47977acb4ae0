#!/usr/bin/env bash
# Usage: scripts/fuzz.sh TIME
#
# Runs every fuzzer of the tree for TIME. What it finds is left in the package's
# testdata/fuzz, where the tests run it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' cmd internal test | sort | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ name; do
		echo "fuzz: $name in $file"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "./$(dirname "$file")" </dev/null
	done
done
