#!/bin/sh
# Two ranks in network namespaces of their own, joined by a link that is slow and loses packets, by one that is cut in the
# middle, and by one that is taken down. Needs root, ip and /dev/net/tun; status 77 with the reason if it cannot have them.
# Usage: tcp_netns_test.sh PATH_OF_TCP_PAIR
set -u
pair=$1
link=$(dirname "$0")/lossy_link.py
a=moecomm-a-$$ b=moecomm-b-$$
work=$(mktemp -d)
first='' second='' relay=''
failures=0

stop() {
  [ -n "$1" ] || return
  kill -9 "$1" 2>/dev/null
  wait "$1" 2>/dev/null
}
clean_up() {
  stop "$first"
  stop "$second"
  stop "$relay"
  ip netns del "$a" 2>/dev/null
  ip netns del "$b" 2>/dev/null
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}
skip() {
  echo "skipped: $1"
  exit 77
}
try() { "$@" 2>"$work/err" || skip "$*: $(cat "$work/err")"; }

# NAMESPACE INTERFACE ADDRESS
configure() {
  try ip -n "$1" address add "$3" dev "$2"
  try ip -n "$1" link set "$2" up
}

make_links() {
  try ip netns add "$a"
  try ip netns add "$b"
  try ip -n "$a" link add plain type veth peer name plain netns "$b"
  configure "$a" plain 10.98.76.1/30
  configure "$b" plain 10.98.76.2/30
  python3 "$link" "moea$$" "moeb$$" 2 1 >"$work/link" 2>&1 &
  relay=$!
  for _ in $(seq 100); do
    grep -q ready "$work/link" && break
    kill -0 "$relay" 2>/dev/null || skip "no tun interfaces: $(tail -n 1 "$work/link")"
    sleep 0.1
  done
  try ip link set "moea$$" netns "$a" name lossy
  try ip link set "moeb$$" netns "$b" name lossy
  configure "$a" lossy 10.98.77.1/30
  configure "$b" lossy 10.98.77.2/30
}

# INTERFACE TIMEOUT_MS ROUNDS
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

await_going() {
  for _ in $(seq 300); do
    if [ -f "$work/meet/going0" ] && [ -f "$work/meet/going1" ]; then return; fi
    sleep 0.1
  done
  fail "the ranks did not begin: $(cat "$work/out0" "$work/out1")"
}

# After how many milliseconds without a word from the other each rank gave up, at most.
at_most() {
  for out in "$work/out0" "$work/out1"; do
    ms=$(sed -n 's/.* after \([0-9]*\) ms: .*/\1/p' "$out")
    [ "${ms:-999999}" -le "$1" ] || fail "not within $1 ms: $(cat "$out")"
  done
}

command -v ip >/dev/null || skip 'no ip (package iproute2)'
make_links

echo 'a link with 4 ms of round trip that loses 1 % of the packets:'
start lossy 20000 60
end 0 '^done$' '^done$'

echo 'the same link, cut in the middle:'
start lossy 4000 0
await_going
kill -USR1 "$relay"
end 3 ' ms: rank 1: ' ' ms: rank 0: '
at_most 7000
kill -USR2 "$relay"

echo 'a good link that is taken down:'
start plain 4000 0
await_going
ip -n "$b" link set plain down
end 3 ' ms: rank 1: ' ' ms: rank 0: '
at_most 7000
ip -n "$b" link set plain up

echo 'a rank that is killed:'
start plain 20000 0
await_going
stop "$second"
wait "$first"
grep -q ' ms: rank 1: it closed the connection' "$work/out0" || fail "rank 0 says something else"
cat "$work/out0"
first='' second=''

if [ $failures -gt 0 ]; then
  echo "$failures checks failed"
  exit 1
fi
echo 'all checks passed'
