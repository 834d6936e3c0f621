#!/bin/bash
# Ranks whose process may open too few files, or none that are large enough, end with a sentence that names the limit,
# and so do the others. Nobody dies by a signal, and nobody blames a rank that is well.
# Usage: limits_test.sh MOERUN EXAMPLE_MINIMAL
set -u
moerun=$1 example=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
export MOECOMM_TIMEOUT_MS=8000

fail() {
  printf 'FAILED: %s\n' "$1"
  sed 's/^/  /' "$work/out"
  failures=$((failures + 1))
}
# Runs the example on several ranks. Rank RANK, or every rank, sets a limit first.
run() { # RANKS RANK|all LIMIT
  # shellcheck disable=SC2016 # for the shell of a rank
  LIMIT=$3 OF=$2 "$moerun" -n "$1" --timeout 60 --grace 4 \
    bash -c '[ $OF != all ] && [ $OF != "$MOECOMM_RANK" ] || ulimit $LIMIT; exec "$0"' "$example" >"$work/out" 2>&1
  status=$?
}
said() { # regular expression
  grep -Ec "$1" "$work/out"
}

for rank in all 1; do
  run 2 $rank '-f 4'
  [ "$(said '^\[[01]\] .*: rank [01]: cannot size the window to [0-9]+ bytes: File too large \(limit 4096 bytes, ulimit -f\)$')" = 2 ] ||
    fail "files of at most 4 KiB, $rank"
  [ $status = 1 ] || fail "files of at most 4 KiB, $rank: status $status"
done

# From so few descriptors that rank 0 can hardly be loaded to enough. At first the others may not reach it at all.
named=0
for most in $(seq 6 2 40); do
  run 6 0 "-n $most"
  [ $status = 0 ] && break
  [ "$(said '^\[0\] .*Too many open files')" = 0 ] && fail "$most descriptors: rank 0 does not say that they are too few"
  # A slow rank may also warn of others that have failed and ended before it.
  grep -E '^\[[1-5]\] ' "$work/out" | grep -v '^\[[1-5]\] moecomm warn .* closed without a goodbye' |
    grep -Evq ' rank 0: .*Too many open files|no rendezvous at|serves the unique id has ended' &&
    fail "$most descriptors: another rank says something else"
  [ "$(said '^\[[1-5]\] .* rank 0: .*Too many open files \(limit [0-9]+, ulimit -n\)')" = 5 ] && named=$((named + 1))
done
[ $status = 0 ] || fail "$most descriptors are too few"
echo "with $most descriptors all is well; with fewer, all ranks knew $named times why it was not"
[ $named -ge 2 ] || fail 'the others hardly ever know why'
[ $failures = 0 ] || { echo "$failures checks failed"; exit 1; }
echo 'all checks passed'
