#!/bin/bash
# Makes the packages in a clean Debian 12 or Ubuntu 24.04, without kernels. There lintian looks at them, apt installs
# them, four ranks of the examples use them, and apt removes them. Needs root, debootstrap and the distribution's mirror,
# and exits with 77 if one is missing.
# Usage: debian_test.sh [--ubuntu] [FOLDER]   (the root's folder is kept; a root that is already there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
. "$source/tests/package/root.sh"
make_root "$@"

folder=$root/root/packages
copy_checkout "$source" "$folder/checkout"

cat >"$folder/test.sh" <<'SCRIPT'
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
ours="libmoecomm0.1 libmoecomm-dev moecomm-tools python3-moecomm"
fail() { echo "FAILED: $*"; exit 1; }
try() { "$@" >log 2>&1 || { tail -40 log; fail "$*"; }; }
# Files that dpkg, apt and ldconfig keep about packages do not count as traces of a package.
list() { find / -xdev \( -path /root -o -path /tmp -o -path '/var/*/apt' -o -path /var/lib/dpkg -o -path /var/log -o \
  -path /var/cache \) -prune -o -print | grep -v '^/etc/ld\.so\.cache' | LC_ALL=C sort; }

checkout/scripts/install_deps.sh deb || fail "what scripts/deb.sh needs"
rm -rf ./*.deb
checkout/scripts/deb.sh . -DMOECOMM_CUDA=OFF || fail "scripts/deb.sh"
try apt-get install -y --no-install-recommends lintian gcc libc6-dev pkg-config python3-numpy
# cpack gives a library's package scripts that call ldconfig. The publisher of packages sets their maintainer.
try lintian --allow-root --fail-on error,warning \
  --suppress-tags maintscript-calls-ldconfig,bogus-mail-host,bogus-mail-host-in-debian-changelog ./*.deb
cat log
apt-get purge -y $ours >/dev/null 2>&1 # files of an earlier run
list >before
try apt-get install -y --no-install-recommends ./*.deb
for package in $ours; do
  [ -s "/usr/share/doc/$package/copyright" ] || fail "$package says nothing about licences"
done
try moe_info
try moerun -n 4 moe_perf --tokens 16:64:x2 --hidden 1024 --experts 32
cat log
[ "$(grep -c ' correct$' log)" = 3 ] || fail "moe_perf verified not all"
try cc -Wall -Werror checkout/tests/package/consumer.c $(pkg-config --cflags --libs moecomm) -o consumer
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
run_and_expect /root/packages test.sh \
  1 '^packages: all right$' \
  4 '^\[.\] rank . of 4: .* largest error'
