#!/bin/sh
# Builds the preset debian and packs it: libmoecomm0.1, libmoecomm-dev, moecomm-tools and python3-moecomm. Prints paths
# and sizes. Needs what install_deps.sh deb installs. Usage: deb.sh OUT_DIR [CMAKE_OPTION...]
set -eu
[ $# -ge 1 ] || { sed -n '2,3s/^# //p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
mkdir -p build
log=build/debian.log
{
  cmake --preset debian "$@" && cmake --build --preset debian -j "${JOBS:-$(nproc)}" && rm -rf "$out/_CPack_Packages" &&
    cpack --config build/debian/CPackConfig.cmake -G DEB -B "$out"
} >"$log" 2>&1 || { tail -50 "$log"; exit 1; }
rm -rf "$out/_CPack_Packages"
ls -s --block-size=1K "$out"/*.deb
