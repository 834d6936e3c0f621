#!/bin/bash
# A domain of several hosts: four ranks on two hosts of a rack (support/api/rack.cc). Where memory cannot be imported
# over the fabric, each host is a domain.
# Usage: rack_test.sh MOERUN API_TESTS
set -u
moerun=$1 tests=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOECOMM_RACK=2 MOECOMM_LOG_LEVEL=info

fail() {
  echo "FAILED: $1"
  cat "$work/log"
  exit 1
}
run() { # tests
  timeout 150 "$moerun" -n 4 "$tests" --gtest_filter="$1:-*Cuda*" >"$work/log" 2>&1
}
passed() {
  [ "$(grep -c 'PASSED' "$work/log")" = 4 ] && ! grep -q 'FAILED' "$work/log"
}

run '*/Sleep.*Host:*/Recover.*Host' && passed || fail 'sleep and recovery in a domain of two hosts'
run '*Step.EveryLayout*Host' && passed || fail 'a domain of two hosts'
grep -q 'peers: 1 (shared memory), 2-3 (NVLink fabric)' "$work/log" || fail 'the fabric was not used'
! grep -q 'domains of' "$work/log" || fail 'there were several domains'

export MOECOMM_RACK_IMPORTS=off
run '*Step.EveryLayout*Host' && passed || fail 'two domains'
grep -q 'does not reach the memory of rank 2: imports fail on this rack' "$work/log" || fail 'no reason'
grep -q '2 domains of 2 ranks, joined by TCP' "$work/log" || fail 'no domains of hosts'

export MOECOMM_DOMAIN_SIZE=4
! run '*Step.EveryLayout*Host' || fail 'a domain without the fabric'
grep -q 'config.domainSize is 4, but rank 0 does not reach the memory of rank 2, which is on another host' \
  "$work/log" || fail 'no sentence'
echo ok
