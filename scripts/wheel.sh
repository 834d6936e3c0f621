#!/bin/sh
# Makes the wheel of an existing build: the library with its kernels, the tools, the Python packages and the header, for
# every Python from 3.9 on. Prints its path and size. SOURCE_DATE_EPOCH sets the date of the files inside.
# Usage: wheel.sh BUILD_DIR [OUT_DIR]   (OUT_DIR: BUILD_DIR/wheel)
set -eu
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
out=${2:-$build/wheel}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" --strip >"$work/log" || { cat "$work/log"; exit 1; }
python3 "$here/wheel_file.py" "$work/prefix" "$out"
