#!/bin/bash
# Installs the wheel of a build in a fresh virtual environment of a clean Debian 12 or Ubuntu 24.04, and runs four ranks
# of everything there: moe_perf, README's programs and the Python example. The build may have been made elsewhere. Given a
# build, it then compiles the checkout's source distribution there, without kernels, and runs moe_perf again. Needs root,
# debootstrap and the distribution's mirror, and exits with 77 if one is missing.
# Usage: clean_wheel_test.sh BUILD_DIR|WHEEL [--ubuntu] [FOLDER]   (the root's folder is kept; a root there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
. "$source/tests/package/root.sh"
made=$(realpath "$1")
shift
make_root "$@"

folder=$root/root/wheel
rm -rf "$folder"
mkdir -p "$folder"
if [ -d "$made" ]; then
  "$source/scripts/wheel.sh" "$made" "$folder" || exit $?
  packer=$("$source/scripts/wheel_tools.sh") || exit $?
  # The root need not reach PyPI.
  (cd "$source" && "$packer" -c "from scikit_build_core import build; build.build_sdist('$folder')") &&
    "$packer" -m pip download --quiet --dest "$folder/links" \
      "scikit-build-core==$("$packer" -c 'import scikit_build_core; print(scikit_build_core.__version__)')" || exit 1
else
  cp "$made" "$folder/" || exit 1
fi
python3 "$source/tests/package/readme.py" "$source/README.md" "$folder" || exit 1 # example.c, example.py
cp "$source/examples/moe_layer.py" "$folder/"
# The guide's lines, of which three build a program in C.
grep -E '^    (at=|export PKG_CONFIG_PATH=|cc )' "$source/docs/guide/install.md" >"$folder/compile.sh"
[ "$(wc -l <"$folder/compile.sh")" = 3 ] || { echo 'FAILED: install.md builds no program in three lines'; exit 1; }

cat >"$folder/test.sh" <<'SCRIPT'
set -e
export DEBIAN_FRONTEND=noninteractive PIP_NO_INDEX=1 PYTHONDONTWRITEBYTECODE=1
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv python3-numpy gcc libc6-dev pkg-config >log 2>&1 || { cat log; exit 1; }
rm -rf venv
python3 -m venv --system-site-packages venv # with the distribution's numpy
. venv/bin/activate
pip install ./moecomm-*.whl
pip check
moe_info
moerun -n 4 moe_perf --tokens 16:64:x2 --hidden 1024 --experts 32
. ./compile.sh
moerun -n 4 ./example
moerun -n 4 python3 example.py
moerun -n 4 python3 moe_layer.py
pip uninstall --yes moecomm
if [ -d links ]; then
  tar -xzf moecomm-*.tar.gz
  moecomm-*/scripts/install_deps.sh build
  CMAKE_ARGS=-DMOECOMM_CUDA=OFF pip install --find-links links ./moecomm-*.tar.gz
  moerun -n 4 moe_perf --tokens 16:64:x2 --hidden 1024 --experts 32
  pip uninstall --yes moecomm
fi
echo 'wheel: all right'
SCRIPT
run_and_expect /root/wheel test.sh \
  1 '^wheel: all right$' \
  3 '^\[0\] .* correct$' \
  4 'token 1: 5 became 100$' \
  4 'the sum is 4\.0$' \
  4 '^\[.\] rank . of 4: .* largest error'
