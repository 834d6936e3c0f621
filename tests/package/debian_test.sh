#!/bin/bash
# Makes Debian's packages, and in a clean Debian 12 has lintian look at them, installs them with apt, uses them, and
# removes them. Needs root, debootstrap and Debian's mirror, and exits with 77 if one is missing. Builds the preset debian
# without kernels. Usage: debian_test.sh [FOLDER_FOR_THE_ROOT]   (a given folder is kept; a root there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
. "$source/tests/package/root.sh"
make_root "$@"

folder=$root/root/packages
rm -rf "$folder"
mkdir -p "$folder"
options=(-DMOECOMM_CUDA=OFF)
! command -v ccache >/dev/null || options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
"$source/scripts/deb.sh" "$folder" "${options[@]}" || exit 1
cp "$source/tests/package/consumer.c" "$folder/"

cat >"$folder/test.sh" <<'SCRIPT'
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
ours="libmoecomm0.1 libmoecomm-dev moecomm-tools python3-moecomm"
fail() { echo "FAILED: $*"; exit 1; }
try() { "$@" >log 2>&1 || { tail -40 log; fail "$*"; }; }
# What dpkg, apt and ldconfig keep about packages is no trace of one.
list() { find / -xdev \( -path /root -o -path /tmp -o -path '/var/*/apt' -o -path /var/lib/dpkg -o -path /var/log -o \
  -path /var/cache \) -prune -o -print | grep -v '^/etc/ld\.so\.cache' | LC_ALL=C sort; }

try apt-get update
try apt-get install -y --no-install-recommends lintian gcc libc6-dev pkg-config python3-numpy
# cpack gives a library's package scripts that call ldconfig. Whoever publishes packages sets their maintainer.
try lintian --allow-root --fail-on error,warning \
  --suppress-tags maintscript-calls-ldconfig,bogus-mail-host,bogus-mail-host-in-debian-changelog ./*.deb
cat log
apt-get purge -y $ours >/dev/null 2>&1 # of an earlier run
list >before
try apt-get install -y --no-install-recommends ./*.deb
for package in $ours; do
  [ -s "/usr/share/doc/$package/copyright" ] || fail "$package says nothing about licences"
done
try moe_info
try moerun -n 2 moe_perf --tokens 16 --hidden 64 --experts 8 --iters 3
grep -q ' correct$' log || fail "moe_perf verified nothing"
try cc -Wall -Werror consumer.c $(pkg-config --cflags --libs moecomm) -o consumer
try ./consumer
try cc /usr/share/moecomm/examples/minimal.c $(pkg-config --cflags --libs moecomm) -o minimal
try moerun -n 4 ./minimal
cd /
found=$(python3 -c 'import moecomm; print(moecomm.__file__, moecomm.library()._name)')
[ "$found" = "/usr/lib/python3/dist-packages/moecomm/__init__.py libmoecomm.so.0.1" ] || fail "Python found $found"
ls /usr/lib/python3/dist-packages/moecomm/__pycache__ | grep -q . || fail "the modules are not compiled"
cd - >/dev/null
try moerun -n 4 python3 /usr/share/moecomm/examples/moe_layer.py
cat log
try apt-get purge -y $ours
list | diff before - || fail "something is left, or lost"
echo "packages: all right"
SCRIPT
run_in_root /root/packages test.sh
