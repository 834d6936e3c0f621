# shellcheck shell=sh disable=SC2034
# Tests of two ranks in separate network namespaces source this. Two links join the namespaces: `lossy`, which is slow
# and loses packets, and `plain`, which is good. Needs root, ip and /dev/net/tun. Otherwise skip() gives the reason and
# exits with 77. The caller sets `first` and `second` to the process ids of the ranks. SIGUSR1 to `relay` cuts the lossy
# link, SIGUSR2 restores it.
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
  try ip -n "$a" link set lo up
  try ip -n "$b" link set lo up
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

# Waits until the ranks have made the files going0 and going1 in a directory.
await_going() { # DIRECTORY
  for _ in $(seq 300); do
    if [ -f "$1/going0" ] && [ -f "$1/going1" ]; then return; fi
    sleep 0.1
  done
  fail "the ranks did not begin: $(cat "$work/out0" "$work/out1")"
}

end_of_checks() {
  if [ $failures -gt 0 ]; then
    echo "$failures checks failed"
    exit 1
  fi
  echo 'all checks passed'
}

command -v ip >/dev/null || skip 'no ip (package iproute2)'
make_links
