#!/bin/bash
# Makes the wheel of a build, twice, installs it in a fresh virtual environment, uses it there with nothing of the source
# tree in reach, and uninstalls it. Then an editable installation and the source distribution. Exits with 77 if what makes
# wheels is not here and PyPI cannot be reached (scripts/wheel_tools.sh). Usage: wheel_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MOECOMM_LIBRARY LD_LIBRARY_PATH PYTHONPATH PKG_CONFIG_PATH VIRTUAL_ENV
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

step() { echo "wheel: $*"; }
fail() { echo "FAILED: $*"; exit 1; }
try() { # command with arguments, whose output is shown only if it fails
  "$@" >"$work/log" 2>&1 && return
  cat "$work/log"
  fail "$*"
}

version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$source/python/moecomm/_version.py")
for recipe in conda/recipe.yaml spack/packages/moecomm/package.py vcpkg/moecomm/vcpkg.json; do
  grep -q "version.*\"$version\"" "$source/packaging/$recipe" || fail "$recipe is not for version $version"
done
packer=$("$source/scripts/wheel_tools.sh") || exit $?
step "two runs make the same bytes"
export SOURCE_DATE_EPOCH=1700000000 # 2023-11-14
"$source/scripts/wheel.sh" "$build" "$work/one" || exit 1
(umask 077 && cd / && TZ=Asia/Tokyo LC_ALL=C try "$source/scripts/wheel.sh" "$build" "$work/two") || exit 1
wheel=$(echo "$work"/one/moecomm-*-py3-none-manylinux_2_*_x86_64.whl)
[ -f "$wheel" ] || fail "no wheel of that name: $(ls "$work/one")"
cmp "$wheel" "$work/two/$(basename "$wheel")" || exit 1
"$packer" -m zipfile --list "$wheel" | awk 'NR > 1 && $(NF - 2) != "2023-11-14"' | grep . && fail "SOURCE_DATE_EPOCH changes nothing"

step "refuses tools that look for the library elsewhere"
mkdir "$work/elsewhere"
sed 's,\$ORIGIN/\.\./lib,/opt/lib,' "$build/cmake_install.cmake" >"$work/elsewhere/cmake_install.cmake"
"$source/scripts/wheel.sh" "$work/elsewhere" >"$work/log" 2>&1 && fail "a wheel whose tools look in /opt/lib"
grep -q "looks for libraries in '.*/opt/lib'" "$work/log" || { cat "$work/log"; fail "refused for another reason"; }

step "contains what it should, and is not too large"
# Most KiB of a wheel without and with kernels, some more than they had in November 2026.
kib=6144
! readelf -SW "$build/src/libmoecomm.so" | grep -q nv_fatbin || kib=36864
[ "$(stat -c %s "$wheel")" -le $((kib * 1024)) ] || fail "$(du -k "$wheel") KiB, more than $kib"
{
  printf 'moecomm/%s\n' bin/moe_info bin/moe_perf bin/moe_top bin/moe_trace bin/moerun \
    lib/libmoecomm.so lib/libmoecomm.so.0.1 lib/pkgconfig/moecomm.pc
  (cd "$source" && find include -name 'moecomm*.h*' -o -path '*/moecomm/*.hpp') | sed 's,^,moecomm/,'
  (cd "$source/python" && find moecomm -name '*.py' -o -name py.typed)
  printf "moecomm-$version.dist-info/%s\n" METADATA RECORD WHEEL entry_points.txt licenses/LICENSE \
    licenses/packaging/third_party.txt
} | LC_ALL=C sort -u >"$work/wanted"
"$packer" -m zipfile --list "$wheel" | awk 'NR > 1 && $1 !~ /\/$/ { print $1 }' | LC_ALL=C sort | diff "$work/wanted" - ||
  fail "the wheel has other files"

step "installs in a fresh environment"
# Another Python may come first and lack numpy. Debian's may have it.
python=python3
"$python" -c 'import ensurepip, numpy' 2>/dev/null || python=/usr/bin/python3
try "$python" -m venv "$work/venv"
list() { (cd "$work/venv" && find . | LC_ALL=C sort); }
list >"$work/before"
numpy=$("$python" -c 'import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])' 2>/dev/null)
PATH=$work/venv/bin:$PATH
python=$work/venv/bin/python
try "$python" -m pip install "$wheel"
try "$python" -m pip check
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

step "contains every module, and RECORD is right"
(cd "$source/python" && find moecomm -name '*.py' -o -name py.typed) | while read -r name; do
  cmp "$source/python/$name" "$site/$name" || exit 1
done || fail "a module is not in the wheel"
cmp "$source/include/moecomm.h" "$site/moecomm/include/moecomm.h" || exit 1
try "$python" - "$wheel" <<'CODE'
import base64, csv, hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
record, = (name for name in archive.namelist() if name.endswith("/RECORD"))
rows = {name: (digest, size) for name, digest, size in csv.reader(archive.read(record).decode().splitlines())}
assert sorted(rows) == sorted(name for name in archive.namelist() if not name.endswith("/"))
assert rows.pop(record) == ("", "")
for name, (digest, size) in rows.items():
    data = archive.read(name)
    right = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    assert (digest, size) == ("sha256=" + right, str(len(data))), name
CODE

# Tests and examples look for the package beside themselves. In these copies they find nothing there.
mkdir -p "$work/away/python" "$work/away/examples"
cp -r "$source/python/tests" "$work/away/python/"
cp -r "$source"/examples/* "$work/away/examples/"
ln -s "$site/moecomm/include" "$work/away/include"
cd "$work/away" || exit 1

step "finds its own library"
found=$(python -c 'import moecomm; print(moecomm.__file__, moecomm.library()._name)') || exit 1
[ "$found" = "$site/moecomm/__init__.py $site/moecomm/lib/libmoecomm.so.0.1" ] || fail "Python found $found"

step "the plugins of engines"
try python - <<'CODE'
from importlib.metadata import entry_points
for group, module in (("vllm.general_plugins", "moecomm.vllm"), ("sglang.srt.plugins", "moecomm.sglang")):
    found, = (one for one in entry_points().select(group=group) if one.name == "moecomm")
    assert found.value == f"{module}:plugin", found
    found.load()()  # nobody has chosen it, so it needs no engine
CODE

step "the tools"
for tool in "$site"/moecomm/bin/*; do
  [ "$(command -v "$(basename "$tool")")" = "$work/venv/bin/$(basename "$tool")" ] || fail "no command for $tool"
  try "$(basename "$tool")" --help
done
try moe_info
try moerun -n 2 moe_perf --tokens 16 --hidden 64 --experts 8 --iters 3
grep -q ' correct$' "$work/log" || { cat "$work/log"; fail "moe_perf verified nothing"; }
moerun -n 2 sh -c 'exit 3' >/dev/null 2>&1
[ $? = 3 ] || fail "the exit status of a job is lost"

step "programs in C"
flags=$(PKG_CONFIG_PATH=$site/moecomm/lib/pkgconfig pkg-config --cflags --libs moecomm)
# The words of $flags are separate arguments.
# shellcheck disable=SC2086
try cc -std=c99 -Wall -Wextra -Werror "$source/tests/package/consumer.c" $flags -Wl,-rpath,"$site/moecomm/lib" -o "$work/consumer"
try "$work/consumer"

# The environment sees numpy and nothing else of its Python's packages.
if [ -n "$numpy" ]; then
  mkdir "$work/numpy"
  ln -s "$numpy"/numpy* "$work/numpy/"
  export PYTHONPATH=$work/numpy
  step "four ranks of the Python example"
  try moerun -n 4 python examples/moe_layer.py
else
  step "no numpy: without the Python example"
fi

step "the binding's tests"
try python -m unittest discover -s python/tests
tail -3 "$work/log"

step "uninstalls without a trace"
try "$python" -m pip uninstall --yes moecomm
list | diff "$work/before" - || fail "something is left, or lost"

step "an editable installation: modules of the checkout, and the library beside them"
unset PYTHONPATH
try cmake --install "$build" --prefix "$work/installed" --component wheel
try env PYTHONPATH="$("$packer" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" "$python" -m pip install \
  --no-build-isolation --no-deps --config-settings=cmake.source-dir=packaging/wheel \
  --config-settings=build-dir="$work/build" --config-settings=cmake.define.MOECOMM_INSTALLED="$work/installed" \
  --editable "$source"
found=$(python -c 'import moecomm; print(moecomm.__file__, moecomm.library()._name)') || exit 1
[ "$found" = "$source/python/moecomm/__init__.py $site/moecomm/lib/libmoecomm.so.0.1" ] || fail "Python found $found"
try moerun -n 4 moe_perf --backend host --tokens 16 --hidden 64 --experts 8 --iters 3
grep -q ' correct$' "$work/log" || { cat "$work/log"; fail "moe_perf verified nothing"; }
try "$python" -m pip uninstall --yes moecomm
rmdir "$site/moecomm" # which pip leaves empty
list | diff "$work/before" - || fail "something is left, or lost"

step "the source distribution has every file of the checkout"
cd "$source" || exit 1
if git -c safe.directory='*' ls-files --cached --others --exclude-standard >"$work/tracked" 2>/dev/null; then
  try "$packer" -c "from scikit_build_core import build; build.build_sdist('$work')"
  grep -Ev '^\.(ci|github)/' "$work/tracked" | while read -r name; do [ ! -e "$name" ] || echo "$name"; done |
    cat - <(echo PKG-INFO) | LC_ALL=C sort >"$work/wanted"
  tar -tzf "$work"/moecomm-*.tar.gz | sed -n "s,^moecomm-$version/\(.*[^/]\)\$,\1,p" | LC_ALL=C sort |
    diff "$work/wanted" - || fail "the source distribution has other files"
else
  step "no git: without it"
fi
step "all right"
