#!/bin/bash
# Runs README.md word by word in a clean Debian 12 or Ubuntu 24.04. debootstrap makes a root of the smallest set of
# packages, and the script copies the checkout into it. Every command runs there except scripts/test.sh, which would run
# this test again. Needs root, debootstrap and the distribution's mirror, and exits with 77 if one is missing. Takes some
# minutes to half an hour.
# Usage: clean_root_test.sh [--ubuntu] [FOLDER]   (the root's folder is kept; a root that is already there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
. "$source/tests/package/root.sh"
make_root "$@"

checkout=$root/root/checkout
copy_checkout "$source" "$checkout"
python3 "$source/tests/package/readme.py" "$source/README.md" "$checkout" scripts/test.sh || exit 1
run_and_expect /root/checkout commands.sh \
  1 '^README: all commands worked$' \
  5 '^demo: [0-9]+ of [0-9]+ steps of the build are done' \
  1 '^demo: all results were correct' \
  3 '^\[0\] .* correct$' \
  4 'token 1: 5 became 100$' \
  4 'the sum is 4\.0$'
