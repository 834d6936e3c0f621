#!/bin/sh
# Each rank is the first process of its own process namespace and has no /proc. The ranks share a host name and
# can look up nothing that tells them apart. Needs root.
# Usage: own_process_test.sh MOERUN EXAMPLE_MINIMAL
set -u
moerun=$1 example=$2
unshare --pid --mount --fork true 2>/dev/null || { echo 'skipped: no namespaces here'; exit 77; }
# shellcheck disable=SC2016
out=$("$moerun" -n 2 --timeout 60 unshare --pid --mount --fork --kill-child \
  sh -c 'mount -t tmpfs none /proc && exec "$0"' "$example" 2>&1)
status=$?
printf '%s\n' "$out"
[ $status = 0 ] || { echo "FAILED: status $status"; exit 1; }
[ "$(printf '%s\n' "$out" | grep -c ' 0 tokens are wrong')" = 2 ] || { echo 'FAILED: tokens are wrong'; exit 1; }
