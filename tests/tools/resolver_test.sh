#!/bin/sh
# A name server that does not answer. A rank that joins by a host name must wait for the server no longer than the
# timeout, and must name the host. Runs in its own network namespace and needs root.
# Usage: resolver_test.sh MISHAP_RANK
set -u
rank=$1
namespace=moecomm-dns-$$
work=$(mktemp -d)
server=''
clean_up() {
  [ -z "$server" ] || kill "$server"
  ip netns del "$namespace" 2>/dev/null
  rm -rf "$work" "/etc/netns/$namespace"
}
trap clean_up EXIT
skip() {
  echo "skipped: $1"
  exit 77
}
fail() {
  echo "FAILED: $1"
  cat "$work/out"
  exit 1
}
try() { "$@" 2>"$work/err" || skip "$*: $(cat "$work/err")"; }

command -v ip >/dev/null || skip 'no ip (package iproute2)'
# The processes of the namespace see this file as /etc/resolv.conf.
try mkdir -p "/etc/netns/$namespace"
echo 'nameserver 127.0.0.1' >"/etc/netns/$namespace/resolv.conf"
try ip netns add "$namespace"
try ip -n "$namespace" link set lo up
ip netns exec "$namespace" python3 -c '
import pathlib, socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
for _ in iter(lambda: server.recv(4096), None):
    pathlib.Path(sys.argv[1]).touch()
' "$work/asked" &
server=$!
sleep 0.5

MOECOMM_RANK=0 MOECOMM_NRANKS=2 MOECOMM_LOCAL_RANK=0 MOECOMM_ROOT=rank0.example:24680 \
  MOECOMM_SECRET=00112233445566778899aabbccddeeff MOECOMM_LOG_LEVEL=none \
  ip netns exec "$namespace" timeout 60 "$rank" --timeout-ms 1500 >"$work/out" 2>&1
[ -e "$work/asked" ] || skip 'this machine does not ask the name server of /etc/resolv.conf'
grep -o -E 'then [1-4]\.[0-9]* s: moeTimeout: host rank0.example was not resolved within 1500 ms' "$work/out" ||
  fail 'it waits too long, or does not say for whom'
