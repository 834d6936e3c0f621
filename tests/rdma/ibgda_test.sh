#!/bin/bash
# The library through its C API over the software adapter: ranks that moerun starts, whose steps post their puts
# themselves.
# Usage: ibgda_test.sh MOERUN API_TESTS MISHAP_RANK KILL_RANK libfakemlx5.so PART
#   PART: two, steps, thread, many, mishaps, all-mishaps, failures, syndromes, kills
set -u
here=$(cd "$(dirname "$0")" && pwd)
moerun=$1 tests=$2 mishap_rank=$3 kill_rank=$4 library=$5 part=$6
export MOECOMM_TRANSPORT=ibgda
# shellcheck source=tests/rdma/ranks.sh
. "$here/ranks.sh"

# On few cores, large batches take minutes through an adapter in software. They run between two ranks only.
small='*Step*/Host:*Domains.OfEvery*/Host:-*LargeBatches*'
case $part in
  two)
    right 2 1 '' '*Step.OpaqueRows*/Host:*Step.SplitPhases*/Host:*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host'
    right 4 2 '' '*Domains.OfEvery*/Host'
    right 2 1 '' '*Sleep.Domains*/Host:*Recover.Domains*/Host'
    right 3 1 '' '*Leave.OfARankOfAnotherDomain*/Host'
    right 2 1 '' 'PutCount*/Host:*PutCount*/Host'
    grep -h -o 'LL.*doorbells.*' "$output" | sort -u
    leaves_nothing 2 1
    ;;
  steps)
    right 2 1 '' '*Step*/Host'
    right 4 2 '' "$small"
    right 4 1 '' "$small"
    ;;
  thread) MOECOMM_RDMA_DOORBELL=thread right 4 2 '' "$small" ;;
  many)
    right 8 2 '' '*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host'
    # The test makes domains of 8 and of 1 itself. The second number does not matter.
    right 16 8 '' '*Domains.OfManyRanks*/Host'
    for size in 8 1; do right 16 $size '' '*Step.TwoHandles*/Host'; done
    ;;
  mishaps)
    export MOECOMM_RDMA_ACK_TIMEOUT=$patient
    for faults in 'drop=20' 'delay=100' 'duplicate=100' 'reorder=200' 'slow_cqe=200' 'ignore_doorbell=5'; do
      right 4 2 "seed=3 $faults" '*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host'
    done
    ;;
  all-mishaps) MOECOMM_RDMA_ACK_TIMEOUT=$patient right 4 2 "$all_mishaps" '*Step.TwoHandles*/Host' ;;
  failures)
    MOECOMM_RDMA_ACK_TIMEOUT=$impatient fails 2 'stuck@100' "rank 0: RDMA write to rank 1 failed: the peer's adapter does not answer \(queue pair 0x"
    # Either end may notice first.
    fails 2 'nak@100' "rank 0: RDMA write to rank 1 failed: the remote key does not cover the remote memory|$refused"
    ;;
  syndromes)
    while read -r syndrome text; do
      fails 2 "error=$syndrome@100" "rank 1: $text"
    done <<'EOT'
0x01 RDMA write to rank 0 failed: the data is longer than the buffer or than the port can send
0x02 RDMA write to rank 0 failed: the work-queue element is malformed
0x04 RDMA write to rank 0 failed: the local key does not cover the local memory
0x05 the connection with rank 0 broke
0x06 RDMA write to rank 0 failed: a memory window could not be bound
0x10 RDMA write to rank 0 failed: the peer's adapter gave an unexpected answer
0x11 RDMA write to rank 0 failed: the local memory may not be written
0x12 RDMA write to rank 0 failed: the peer's adapter refused the request as invalid
0x13 RDMA write to rank 0 failed: the remote key does not cover the remote memory, or not for this operation
0x14 RDMA write to rank 0 failed: the peer's adapter could not carry it out
0x15 RDMA write to rank 0 failed: the peer's adapter does not answer
0x16 RDMA write to rank 0 failed: the peer has no receive buffer ready
0x22 RDMA write to rank 0 failed: the peer aborted it
0x77 RDMA write to rank 0 failed: a syndrome that mlx5dv.h does not name
EOT
    ;;
  kills) kills "$here/../api/kill_test.sh" 4 2 ;;
esac
exit $failed
