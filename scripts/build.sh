#!/bin/sh
# build.sh OUT [LDFLAGS [PACKAGE]]: builds the program, or another PACKAGE, with the stage
# of boxes in it. Where that is one of its own it starts in less time; what is built with
# "go build" alone does the same and uses itself.
set -eu
out=$1 ldflags=${2-} package=${3-./cmd/ringfence}
go=${GO:-go}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
build() { CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false "$@"; }

build -ldflags '-s -w' -o "$dir/stage" ./cmd/stage
# The compiler is shown it as if it were in the tree.
printf '{"Replace": {"%s/internal/sandbox/native/image": "%s/stage"}}\n' "$PWD" "$dir" >"$dir/overlay.json"
build -overlay "$dir/overlay.json" -tags boxstage -ldflags "$ldflags" -o "$dir/program" "$package"
# As the linker writes it, it lies in memory in single pages; a copy, as an installed program
# is one, lies there in larger pieces and starts in some 0.5 ms less.
mkdir -p "$(dirname "$out")"
rm -f "$out"
cp "$dir/program" "$out"
