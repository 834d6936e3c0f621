#!/bin/sh
# Installs with apt what is missing for building, testing and checking, on Debian 12 and Ubuntu 24.04 or later. It needs
# root or sudo if something is missing. If there is a CUDA compiler without its disassemblers, `all` also fetches those
# from PyPI into build/nvdisasm. Usage: install_deps.sh [build|deb|numpy|peers|aarch64|all]
#   build  for building, testing and running
#   deb    for building packages (scripts/deb.sh)
#   numpy  for the Python examples
#   peers  for building, with an MPI, which scripts/host_peers.py measures beside the library
#   aarch64  for building, and a compiler and libraries for 64-bit ARM, and qemu-user (CMake's preset aarch64). On Debian:
#          Ubuntu has that processor's packages at another address, which must be among apt's sources
#   all    build and numpy, and the tools of scripts/test.sh (the default)
set -eu
what=${1:-all}

fetch_disassemblers() {
  PATH=$PATH:/usr/local/cuda/bin
  to=$(dirname "$0")/../build/nvdisasm
  if [ "$what" != all ] || ! command -v nvcc >/dev/null || command -v cuobjdump >/dev/null ||
    [ -x "$to/nvidia/cu13/bin/cuobjdump" ]; then
    return
  fi
  rm -rf "$to"
  python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps --target "$to" \
    nvidia-cuda-nvdisasm==13.2.51 nvidia-cuda-cuobjdump==13.2.51 ||
    echo "install_deps: no cuobjdump and no nvdisasm: the codegen step is skipped" >&2
}

packages="g++ cmake ninja-build pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev libhwloc-dev libgtest-dev python3"
packages="$packages libsodium-dev libibverbs-dev ibverbs-providers ibverbs-utils"
if [ "$what" = numpy ]; then packages="python3 python3-numpy"; fi
if [ "$what" = all ]; then
  packages="$packages debootstrap ccache clang libclang-rt-dev clang-format-14 clang-tidy-14 git python3-numpy"
  packages="$packages libbenchmark-dev python3-venv iproute2 qemu-system-x86 busybox-static" # test networks; tests/rxe_vm
  packages="$packages doxygen" # scripts/site.sh
  packages="$packages python3-pytest python3-pytest-xdist" # the tests of the Python packages, side by side
fi
[ "$what" != deb ] || packages="$packages dpkg-dev file"
[ "$what" != peers ] || packages="$packages libopenmpi-dev openmpi-bin"
if [ "$what" = aarch64 ]; then
  packages="$packages g++-aarch64-linux-gnu qemu-user libfmt-dev:arm64 libhwloc-dev:arm64 libibverbs-dev:arm64"
  packages="$packages libgtest-dev:arm64 libbenchmark-dev:arm64 libsodium-dev:arm64"
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is no Debian or Ubuntu; install the equivalents of: $packages" >&2
  exit 0
fi

is_installed() {
  case $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true) in
    "install ok installed"*) ;; # several times if it is there for several processors
    *) return 1 ;;
  esac
}
missing=
for package in $packages; do
  is_installed "$package" || missing="$missing $package"
done
# Ubuntu has no CRIU.
if [ "$what" = all ] && ! is_installed criu && apt-cache show criu >/dev/null 2>&1; then missing="$missing criu"; fi
if [ -z "$missing" ]; then
  fetch_disassemblers
  exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps: not root and no sudo; missing:$missing" >&2; exit 1; }
  as_root="sudo"
fi
echo "install_deps: installing with apt, which may take some minutes:$missing"
[ "$what" != aarch64 ] || $as_root dpkg --add-architecture arm64
$as_root apt-get update -qq
# The names are separate words.
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fetch_disassemblers
