#!/bin/bash
# Runs README.md word by word in a clean Debian 12. debootstrap makes a root of the smallest set of packages, and the
# script copies the checkout into it. Every command runs there except scripts/test.sh, which would run this test again.
# Needs root, debootstrap and Debian's mirror, and exits with 77 if one is missing. Takes some minutes to half an hour.
# Usage: clean_root_test.sh [FOLDER_FOR_THE_ROOT]   (a given folder is kept; a root that is already there is reused)
set -u
source=$(realpath "$(dirname "$0")/../..")
mirror=http://deb.debian.org/debian suite=bookworm
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'not root'
command -v debootstrap >/dev/null || skip 'no debootstrap'
unshare --mount --pid --fork true 2>/dev/null || skip 'no namespaces'

if [ $# -gt 0 ]; then
  root=$(realpath -m "$1")
else
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
if [ ! -e "$root/bin/sh" ]; then
  debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -5 "$root.log"; skip 'debootstrap failed'; }
  rm -f "$root.log"
fi
cp /etc/resolv.conf "$root/etc/"

checkout=$root/root/checkout
rm -rf "$checkout"
mkdir -p "$checkout"
git -C "$source" -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
  tar -C "$source" --null --files-from=- --ignore-failed-read -c 2>/dev/null | tar -C "$checkout" -x
python3 "$source/tests/package/readme.py" "$source/README.md" "$checkout" scripts/test.sh || exit 1

# Mounts and processes end with the namespace.
out=$checkout/output
# shellcheck disable=SC2016 # the shell inside reads them
ROOT=$root unshare --mount --pid --fork --kill-child sh -c '
  mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && mount --rbind /sys "$ROOT/sys" &&
  exec chroot "$ROOT" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
    sh -c "cd && cd checkout && exec bash commands.sh"' 2>&1 | tee "$out"
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
