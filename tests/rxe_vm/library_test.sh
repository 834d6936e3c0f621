#!/bin/bash
# In the machine of run.sh: the whole library through its C API, on two ranks that reach each other over rxe0 and rxe1
# alone. The test runs steps, then steps with lost packets, then kills a rank.
# Usage: library_test.sh MOERUN API_TESTS KILL_RANK
set -u
moerun=$1 tests=$2 kill_rank=$3
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin MOECOMM_TRANSPORT=verbs MOECOMM_DOMAIN_SIZE=1 MOECOMM_INTERFACE=lo
export MOECOMM_RDMA_ACK_TIMEOUT=15 # 0.13 s, seven times: an emulated machine is slow to answer
failed=0

# Gives each rank its device.
# shellcheck disable=SC2016 # the rank's shell reads it
on_its_device='MOECOMM_NICS=rxe$MOECOMM_RANK exec "$@"'

steps() { # what, filter
  local begin=$SECONDS
  timeout 100 "$moerun" -n 2 sh -c "$on_its_device" rank "$tests" --gtest_filter="$2:-*Cuda*" >/tmp/output 2>&1
  local status=$?
  if [ $status = 0 ] && [ "$(grep -c '\[  PASSED  \] [1-9]' /tmp/output)" = 2 ]; then
    echo "$1: right ($((SECONDS - begin)) s)"
  else
    echo "FAILED: $1: status $status (124: it hangs)"
    tail -n 60 /tmp/output
    failed=1
  fi
}

steps 'two ranks over Soft-RoCE' '*Step.TwoHandles*/Host'
steps 'the same around sleeps and recoveries' '*Sleep.Domains*/Host:*Recover.Domains*/Host'
for wire in v0 v1; do tc qdisc add dev $wire root netem loss 1% || failed=1; done
steps 'the same with lost packets' '*Step.SplitPhases*/Host'
lost=0
for wire in v0 v1; do
  dropped=$(tc -s qdisc show dev $wire | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')
  echo "$wire: ${dropped:-no count of} packets dropped"
  lost=$((lost + ${dropped:-0}))
  tc qdisc del dev $wire root
done
[ $lost -gt 0 ] || { echo "FAILED: no packet was lost" && failed=1; }
KILL_ROUNDS=steps KILL_PREFIX=$on_its_device "$here/../api/kill_test.sh" "$moerun" "$kill_rank" host 2 || failed=1
exit $failed
