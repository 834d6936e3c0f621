#!/bin/sh
# Makes the wheel of an existing build without compiling again: the library with its kernels, the tools, the Python
# packages and the header, for every Python from 3.9 on. Prints its path and size. SOURCE_DATE_EPOCH sets the date of the
# files inside. scikit-build-core packs it, as it does for `pip wheel .`. auditwheel names the oldest glibc. Both come
# from PyPI into build/wheel_tools. Exit status 77: they could not be fetched.
# Usage: wheel.sh BUILD_DIR [OUT_DIR]   (OUT_DIR: BUILD_DIR/wheel)
set -eu
[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
out=${2:-$build/wheel}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-315532800}" # 1980-01-01, the first date of a zip file
umask 022 # auditwheel keeps the modes of what it unpacked

try() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

python=$("$source/scripts/wheel_tools.sh") || exit $?
try cmake --install "$build" --prefix "$work/installed" --component wheel --strip
for binary in "$work"/installed/moecomm/bin/* "$work"/installed/moecomm/lib/libmoecomm.so.*; do
  "$source/tests/abi/check_needed.sh" "$binary"
  paths=$(LC_ALL=C readelf -d "$binary" | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]/\2/p')
  # shellcheck disable=SC2016 # the loader reads $ORIGIN
  case $binary:$paths in
    */lib/libmoecomm.so.*: | */bin/*:'$ORIGIN/../lib') ;;
    *) echo "wheel: $(basename "$binary") looks for libraries in '$paths', not in '\$ORIGIN/../lib'" >&2; exit 1 ;;
  esac
done
try "$python" -m pip wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$work" \
  --config-settings=cmake.source-dir=packaging/wheel --config-settings=build-dir="$work/build" \
  --config-settings=cmake.define.MOECOMM_INSTALLED="$work/installed" "$source"
# Nothing may have to be added to the wheel, so auditwheel needs no patchelf.
try "$python" -m auditwheel repair --patcher none --zip-compression-level 9 --wheel-dir "$work/named" "$work"/moecomm-*.whl
wheel=$(basename "$work"/named/moecomm-*.whl)
mv "$work/named/$wheel" "$out/"
echo "$out/$wheel"
echo "$(($(stat -c %s "$out/$wheel") / 1024)) KiB"
