#!/bin/sh
# A CMake configuration ends with what will be built, and with the reason for what will not. Usage: summary_test.sh
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

configure() { # options; leaves the summary in $work/summary
  cmake -S "$source" -B "$work/build" -DMOECOMM_TESTS=OFF -DMOECOMM_PERF=OFF -DCMAKE_INSTALL_PREFIX=/opt/here "$@" \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  sed -n '/^-- moecomm [0-9.]*, [A-Za-z]*:$/,$p' "$work/log" | grep '^--   ' >"$work/summary"
}
says() {
  grep -Fxq -e "--   $1" "$work/summary" || { echo "not said: $1"; cat "$work/summary"; exit 1; }
}

configure -DCMAKE_CUDA_COMPILER= -DMOECOMM_RDMA=OFF
says 'Host backend: on'
says 'GPU backend: off, because no CUDA compiler was found; CMAKE_CUDA_COMPILER or CUDACXX may name one'
says 'RDMA: off, because MOECOMM_RDMA is OFF'
says 'Tests: off'
says 'moe_perf: off'
says 'Installs to: /opt/here'
grep -Eq '^--   hwloc: /.*/hwloc\.h$' "$work/summary"
grep -Eq '^--   libsodium: /.*/libsodium\.a$' "$work/summary"

configure -DMOECOMM_CUDA=OFF -DMOECOMM_RDMA=AUTO \
  -DMOECOMM_LIBRARY_mlx5= -DMOECOMM_SANITIZE=thread -DMOECOMM_INSTALL=OFF
says 'GPU backend: off, because MOECOMM_CUDA is OFF'
grep -Eq '^--   RDMA: .*because of what was not found: .*libmlx5' "$work/summary" || { cat "$work/summary"; exit 1; }
says 'Sanitizers: thread'
says 'Installs to: off'

# The library alone can be built and installed.
configure -DMOECOMM_CUDA=OFF -DMOECOMM_TOOLS=OFF -DMOECOMM_INSTALL=ON
says 'Installs to: /opt/here'

# A half installed MPI does not matter, because only peers need one.
PATH=$source/tests/tools/broken_mpi:$PATH configure -DMOECOMM_CUDA=OFF -DMOECOMM_RDMA=OFF -DMOECOMM_SANITIZE= \
  -DMOECOMM_TOOLS=ON -DMOECOMM_PERF=ON
grep -Eq '^--   moe_perf: on' "$work/summary" || { cat "$work/summary"; exit 1; }

! cmake -S "$source" -B "$work/build" -DMOECOMM_LIBRARY_libsodium_a= >"$work/log" 2>&1 || { echo "no libsodium"; exit 1; }
tr -s ' \n' ' ' <"$work/log" | grep -q 'libsodium.a was not found: install libsodium-dev .*MOECOMM_SHARED_SODIUM=ON' ||
  { cat "$work/log"; exit 1; }

for tool in dpkg-shlibdeps file; do
  ! cmake -S "$source" -B "$work/debian" -DMOECOMM_CUDA=OFF -DMOECOMM_TESTS=OFF -DMOECOMM_DEBIAN=ON \
    -DCMAKE_INSTALL_PREFIX=/usr -DMOECOMM_PROGRAM_dpkg-shlibdeps=/bin/true "-DMOECOMM_PROGRAM_$tool=" \
    >"$work/log" 2>&1 || { echo "packages without $tool"; exit 1; }
  tr -s ' \n' ' ' <"$work/log" | grep -q "packages need $tool, which is not installed: scripts/install_deps.sh deb" ||
    { cat "$work/log"; exit 1; }
  rm -r "$work/debian"
done
echo 'all checks passed'
