#!/bin/sh
# Ranks of one host whose addresses are unusual: two interfaces with the same address, or no IPv4 at all. Each host is a
# network namespace. Needs root and ip. Usage: addresses_netns_test.sh MOERUN MOE_PERF EXAMPLE_MINIMAL
set -u
export MOERUN="$1" PERF="$2" MINIMAL="$3" MOECOMM_TIMEOUT_MS=10000
command -v ip >/dev/null || { echo 'skipped: no ip (package iproute2)'; exit 77; }
unshare --net true 2>/dev/null || { echo 'skipped: no network namespaces here'; exit 77; }
failures=0

on_host() { # WHAT, COMMANDS
  echo "$1:"
  timeout 100 unshare --net sh -eu -c "ip link set lo up; $2" && return
  echo "FAILED: $1"
  failures=$((failures + 1))
}
twice() { # ADDRESS
  echo "for name in one two; do
    ip link add \$name type veth peer name \$name-end
    ip address add $1 dev \$name
    ip link set \$name up
    ip link set \$name-end up
  done"
}

threads="\"\$PERF\" --ranks-as-threads 2 --backend host --tokens 4 --hidden 64 --experts 4 --topk 2 --iters 2 --warmup 0"
for address in 10.98.75.1/24 'fd00:98::1/64 nodad'; do
  on_host "two interfaces with $address" "$(twice "$address")
    [ \$(ip -o address show to '${address%/*}' | wc -l) = 2 ]
    $threads
    $threads --domain-size 1 --transport tcp"
done

only_ipv6='ip address delete 127.0.0.1/8 dev lo'
on_host 'no address but ::1, moerun' "$only_ipv6; \"\$MOERUN\" -n 2 --timeout 60 \"\$MINIMAL\""
on_host 'no address but ::1, a unique id, and TCP between domains' "$only_ipv6
  $threads --domain-size 1 --transport tcp"
on_host 'no address but ::1, as mpirun starts ranks' "$only_ipv6
  export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$$
  OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 \"\$MINIMAL\" &
  OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 \"\$MINIMAL\"
  wait \$!"
[ $failures = 0 ] || { echo "$failures checks failed"; exit 1; }
echo 'all checks passed'
