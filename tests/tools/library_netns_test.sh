#!/bin/sh
# The whole library over TCP between two namespaces (netns.sh), each a host of one rank. Steps of both modes must be
# right over a link that is slow and loses packets. When a link is cut or taken down, both ranks must end within the
# timeout with an error that names the other. mishap_rank checks that, and that nothing is left behind.
# Usage: library_netns_test.sh PATH_OF_MISHAP_RANK
set -u
rank=$1
# shellcheck source=tests/tools/netns.sh
. "$(dirname "$0")/netns.sh"
port=24680

run_rank() { # NAMESPACE RANK INTERFACE ADDRESS_OF_RANK_0 ARGUMENTS...
  namespace=$1 number=$2 interface=$3 root=$4
  shift 4
  MOECOMM_RANK=$number MOECOMM_NRANKS=2 MOECOMM_LOCAL_RANK=0 MOECOMM_ROOT=$root:$port \
    MOECOMM_SECRET=00112233445566778899aabbccddeeff MOECOMM_INTERFACE=$interface MOECOMM_LOG_LEVEL=none \
    MOECOMM_TRANSPORT=tcp MOECOMM_DOMAIN_SIZE=1 \
    ip netns exec "$namespace" timeout 40 "$rank" --going "$work/going$number" "$@" >"$work/out$number" 2>&1 &
}

start() { # INTERFACE ADDRESS_OF_RANK_0 ARGUMENTS...
  rm -f "$work"/going*
  port=$((port + 1))
  run_rank "$a" 0 "$@"
  first=$!
  run_rank "$b" 1 "$@"
  second=$!
}

# Both ranks must end well and report one of these results, and the steps before must be right.
end() { # PATTERN_OF_RESULT
  wait "$first"
  status="$?"
  wait "$second"
  [ "$status $?" = '0 0' ] || fail 'a rank did not end as it must'
  for out in "$work/out0" "$work/out1"; do
    grep -q -E "^ended [01]: .* 0 wrong, .*: ($1):" "$out" || fail "a rank does not say: $1"
  done
  first='' second=''
  cat "$work/out0" "$work/out1"
}

for mode in ht ll; do
  echo "$mode over a link with 4 ms of round trip that loses 1 % of the packets:"
  start lossy 10.98.77.1 --mode $mode --steps 12 --timeout-ms 15000
  end moeSuccess
done

echo 'the same link, cut in the middle of HT steps:'
start lossy 10.98.77.1 --mode ht --timeout-ms 3000
await_going "$work"
kill -USR1 "$relay"
end 'moeTimeout|moeRemoteError'
kill -USR2 "$relay"

echo 'a good link that is taken down in the middle of LL steps:'
start plain 10.98.76.1 --mode ll --timeout-ms 3000
await_going "$work"
ip -n "$b" link set plain down
end 'moeTimeout|moeRemoteError'
end_of_checks
