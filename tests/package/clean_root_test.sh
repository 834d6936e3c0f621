#!/bin/bash
# Runs README.md word by word in a clean Debian 12. debootstrap makes a root of the smallest set of packages, and the
# script copies the checkout into it. Every command runs there except scripts/test.sh, which would run this test again.
# Needs root, debootstrap and Debian's mirror, and exits with 77 if one is missing. Takes some minutes to half an hour.
# Usage: clean_root_test.sh [FOLDER_FOR_THE_ROOT]   (a given folder is kept; a root that is already there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
. "$source/tests/package/root.sh"
make_root "$@"

checkout=$root/root/checkout
rm -rf "$checkout"
mkdir -p "$checkout"
git -C "$source" -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
  tar -C "$source" --null --files-from=- --ignore-failed-read -c 2>/dev/null | tar -C "$checkout" -x
python3 "$source/tests/package/readme.py" "$source/README.md" "$checkout" scripts/test.sh || exit 1

out=$checkout/output
run_in_root /root/checkout commands.sh 2>&1 | tee "$out"
status=${PIPESTATUS[0]}
expect() { # how often at least, regular expression
  [ "$(grep -Ec "$2" "$out")" -ge "$1" ] && return
  echo "FAILED: not $1 times: $2"
  status=1
}
expect 1 '^README: all commands worked$'
expect 5 '^demo: [0-9]+ of [0-9]+ steps of the build are done'
expect 1 '^demo: all results were correct'
expect 3 '^\[0\] .* correct$'
expect 4 'token 1: 5 became 100$'
expect 4 'the sum is 4\.0$'
exit "$status"
