#!/bin/bash
# Runs README.md's commands and programs word by word, except those that build or install packages. It installs an
# existing build in a temporary home. Usage: readme_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A copy of the checkout whose build/release is BUILD_DIR.
mkdir -p "$work/home" "$work/checkout/build"
for entry in "$source"/*; do
  [ "$(basename "$entry")" = build ] || ln -s "$entry" "$work/checkout"
done
ln -s "$build" "$work/checkout/build/release"

skipped=(scripts/demo.sh scripts/test.sh scripts/install_deps.sh 'cmake --preset')
# Another Python may come first and lack numpy. Debian's in /usr/bin may have it.
python3 -c 'import numpy' 2>/dev/null || PATH=/usr/bin:$PATH
python3 -c 'import numpy' 2>/dev/null || { skipped+=(PYTHONPATH=python) && echo 'no numpy: without the Python program'; }
python3 "$source/tests/package/readme.py" "$source/README.md" "$work/checkout" "${skipped[@]}" || exit 1

cd "$work/checkout" || exit 1
unset MOECOMM_LIBRARY LD_LIBRARY_PATH PKG_CONFIG_PATH
HOME=$work/home PYTHONDONTWRITEBYTECODE=1 bash commands.sh >"$work/out" 2>&1
status=$?
expect() { # how often, regular expression
  [ "$(grep -Ec "$2" "$work/out")" = "$1" ] && return
  echo "not $1 times: $2"
  status=1
}
expect 1 '^README: all commands worked$'
expect 3 '^\[0\] .* correct$'
expect 4 'token 1: 5 became 100$'
[[ " ${skipped[*]} " = *PYTHONPATH* ]] || expect 4 'the sum is 4\.0$'
[ $status = 0 ] || cat "$work/out"
# The C program's result is the same for other numbers of ranks, also for more than there are experts.
for ranks in 1 2 3 6; do
  LD_LIBRARY_PATH=$work/home/moecomm/lib "$work/home/moecomm/bin/moerun" -n $ranks ./example >"$work/out" 2>&1 || status=1
  expect $ranks 'token 1: 5 became 100$'
done
[ $status = 0 ] || cat "$work/out"
exit $status
