#!/bin/bash
# The whole library through its C API over the software adapter: ranks that moerun starts, whose puts the verbs
# transport posts by libibverbs to libfakemlx5.so. The output is the table of mishaps.
# Usage: library_test.sh MOERUN API_TESTS MISHAP_RANK KILL_RANK libfakemlx5.so PART
#   PART: steps, mishaps, all-mishaps, failures, syndromes, kills
set -u
here=$(cd "$(dirname "$0")" && pwd)
moerun=$1 tests=$2 mishap_rank=$3 kill_rank=$4 library=$5 part=$6
export MOECOMM_TRANSPORT=verbs
# shellcheck source=tests/rdma/ranks.sh
. "$here/ranks.sh"

case $part in
  steps)
    right 2 1 '' '*Step.OpaqueRows*/Host:*Step.SplitPhases*/Host:*Domains.OfEvery*/Host'
    # The tests of domains also make domains of one rank each.
    right 4 2 '' '*Step.TwoHandles*/Host:*Domains.OfEvery*/Host:*Domains.SplitPhases*/Host'
    right 2 1 '' '*Sleep.Domains*/Host:*Recover.Domains*/Host'
    right 3 1 '' '*Leave.OfARankOfAnotherDomain*/Host'
    leaves_nothing 2 1
    ;;
  mishaps)
    export MOECOMM_RDMA_ACK_TIMEOUT=$patient
    for faults in 'drop=20' 'delay=100' 'duplicate=100' 'reorder=200' 'slow_cqe=200' 'ignore_doorbell=5'; do
      right 2 1 "seed=3 $faults" '*Step.TwoHandles*/Host'
    done
    ;;
  all-mishaps) MOECOMM_RDMA_ACK_TIMEOUT=$patient right 4 2 "$all_mishaps" '*Step.TwoHandles*/Host' ;;
  failures)
    MOECOMM_RDMA_ACK_TIMEOUT=$impatient fails 2 'stuck@100' 'rank 0: RDMA write to rank 1 failed: transport retry counter exceeded'
    # Either end may notice first.
    fails 2 'nak@100' "rank 0: RDMA write to rank 1 failed: remote access error|$refused"
    ;;
  syndromes)
    while read -r syndrome text; do
      fails 2 "error=$syndrome@100" "rank 1: $text"
    done <<'EOT'
0x01 RDMA write to rank 0 failed: local length error
0x02 RDMA write to rank 0 failed: local QP operation error
0x04 RDMA write to rank 0 failed: local protection error
0x05 the connection with rank 0 broke
0x06 RDMA write to rank 0 failed: memory management operation error
0x10 RDMA write to rank 0 failed: bad response error
0x11 RDMA write to rank 0 failed: local access error
0x12 RDMA write to rank 0 failed: remote invalid request error
0x13 RDMA write to rank 0 failed: remote access error
0x14 RDMA write to rank 0 failed: remote operation error
0x15 RDMA write to rank 0 failed: transport retry counter exceeded
0x16 RDMA write to rank 0 failed: RNR retry counter exceeded
0x22 RDMA write to rank 0 failed: aborted error
0x77 RDMA write to rank 0 failed: general error
EOT
    ;;
  kills) kills "$here/../api/kill_test.sh" 4 2 ;;
esac
exit $failed
