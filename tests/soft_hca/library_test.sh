#!/bin/bash
# The whole library through its C API over the software adapter: ranks that moerun starts, whose puts the verbs transport
# posts by libibverbs to libfakemlx5.so. What it prints is the table of mishaps.
# Usage: library_test.sh MOERUN API_TESTS KILL_RANK libfakemlx5.so steps|mishaps|failures|kills
set -u
here=$(cd "$(dirname "$0")" && pwd)
moerun=$1 tests=$2 kill_rank=$3 library=$4 part=$5
export MOECOMM_TRANSPORT=verbs
# shellcheck source=tests/soft_hca/ranks.sh
. "$here/ranks.sh"

case $part in
  steps)
    right 2 1 '' '*Step.OpaqueRows*/Host:*Step.SplitPhases*/Host:*Domains.OfEvery*/Host'
    # The tests of domains also make them of one rank each.
    right 4 2 '' '*Step.TwoHandles*/Host:*Domains.OfEvery*/Host:*Domains.SplitPhases*/Host'
    ;;
  mishaps)
    for faults in 'drop=20' 'delay=100' 'duplicate=100' 'reorder=200' 'rnr=50' 'slow_cqe=200' 'ignore_doorbell=5'; do
      right 2 1 "seed=3 $faults" '*Step.TwoHandles*/Host'
    done
    right 4 2 'seed=4 drop=10 delay=30 duplicate=50 reorder=50 rnr=10 slow_cqe=50 ignore_doorbell=2' \
      '*Step.TwoHandles*/Host'
    ;;
  failures)
    # A peer is given up after two seconds; the others answer, however slow the machine is.
    MOECOMM_RDMA_ACK_TIMEOUT=16 fails 2 'stuck@100' 'rank 0: RDMA write to rank 1 failed: transport retry counter exceeded'
    # Whichever end notices first.
    fails 2 'nak@100' "rank 0: RDMA write to rank 1 failed: remote access error|$refused"
    fails 2 'error=0x04@100' 'rank 1: RDMA write to rank 0 failed: local protection error'
    ;;
  kills)
    mkdir "$sockets"
    # shellcheck disable=SC2016 # the rank's shell reads it
    LIBRARY=$library MOECOMM_DOMAIN_SIZE=2 KILL_ROUNDS=few KILL_PREFIX='LD_PRELOAD=$LIBRARY exec "$@"' \
      "$here/../api/kill_test.sh" "$moerun" "$kill_rank" host 4 || failed=1
    ;;
esac
exit $failed
