#!/bin/sh
# The TCP transport by itself between two namespaces (netns.sh): over a link that is slow and loses packets, over one
# that is cut in the middle, and over one that is taken down. It also kills a rank.
# Usage: tcp_netns_test.sh PATH_OF_TCP_PAIR
set -u
pair=$1
# shellcheck source=tests/tools/netns.sh
. "$(dirname "$0")/netns.sh"
# The report of a rank about the rank behind a cut link.
silent=' ms: rank [01]: \(rank\|nothing arrives from rank\)'
# Starts both ranks: INTERFACE TIMEOUT_MS ROUNDS
start() {
  rm -rf "$work/meet"
  mkdir "$work/meet"
  ip netns exec "$a" "$pair" 0 "$work/meet" "$1" "$2" "$3" >"$work/out0" 2>&1 &
  first=$!
  ip netns exec "$b" "$pair" 1 "$work/meet" "$1" "$2" "$3" >"$work/out1" 2>&1 &
  second=$!
}

# How both must end: STATUS PATTERN_OF_RANK_0 PATTERN_OF_RANK_1
end() {
  wait "$first"
  status="$?"
  wait "$second"
  [ "$status $?" = "$1 $1" ] || fail "not status $1"
  grep -q "$2" "$work/out0" || fail 'rank 0 says something else'
  grep -q "$3" "$work/out1" || fail 'rank 1 says something else'
  first='' second=''
  cat "$work/out0" "$work/out1"
}

# Expects that each rank gave up after at most $1 milliseconds without a word from the other.
at_most() {
  for out in "$work/out0" "$work/out1"; do
    ms=$(sed -n 's/.* after \([0-9]*\) ms: .*/\1/p' "$out")
    [ "${ms:-999999}" -le "$1" ] || fail "not within $1 ms: $(cat "$out")"
  done
}

echo 'a link with 4 ms of round trip that loses 1 % of the packets:'
start lossy 20000 60
end 0 '^done$' '^done$'

echo 'the same link, cut in the middle:'
start lossy 4000 0
await_going "$work/meet"
kill -USR1 "$relay"
end 3 "$silent 1" "$silent 0"
at_most 7000
kill -USR2 "$relay"

echo 'a good link that is taken down:'
start plain 4000 0
await_going "$work/meet"
ip -n "$b" link set plain down
end 3 "$silent 1" "$silent 0"
at_most 7000
ip -n "$b" link set plain up

echo 'a rank that is killed:'
start plain 20000 0
await_going "$work/meet"
stop "$second"
wait "$first"
grep -q ' ms: rank 0: rank 1 closed the connection for puts without a goodbye' "$work/out0" || fail "rank 0 says something else"
cat "$work/out0"
first='' second=''

end_of_checks
