#!/bin/bash
# The library through its C API over the software adapter: ranks that moerun starts, whose steps post their puts
# themselves.
# Usage: ibgda_test.sh MOERUN API_TESTS libfakemlx5.so two|steps|thread|many|mishaps|failures
set -u
moerun=$1 tests=$2 library=$3 part=$4
export MOECOMM_TRANSPORT=ibgda
# shellcheck source=tests/soft_hca/ranks.sh
. "$(dirname "$0")/ranks.sh"

# Large batches through an adapter in software take minutes where cores are few: between two ranks alone.
small='*Step*/Host:-*LargeBatches*'
case $part in
  two)
    right 2 1 '' '*Step.OpaqueRows*/Host:*Step.SplitPhases*/Host:*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host'
    right 2 1 '' 'PutCount*/Host:*PutCount*/Host'
    grep -h -o 'LL.*doorbells.*' "$output" | sort -u
    ;;
  steps)
    right 2 1 '' '*Step*/Host'
    right 4 2 '' "$small"
    right 4 1 '' "$small"
    ;;
  thread) MOECOMM_RDMA_DOORBELL=thread right 4 2 '' "$small" ;;
  many) right 8 2 '' '*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host' ;;
  mishaps)
    for faults in 'drop=20' 'delay=100' 'duplicate=100' 'reorder=200' 'slow_cqe=200' 'ignore_doorbell=5'; do
      right 4 2 "seed=3 $faults" '*Step.TwoHandles*/Host:*Step.OutputsOutside*/Host'
    done
    ;;
  failures)
    # A peer is given up after two seconds; the others answer, however slow the machine is.
    MOECOMM_RDMA_ACK_TIMEOUT=16 fails 2 'stuck@100' "rank 0: RDMA write to rank 1 failed: the peer's adapter does not answer \(queue pair 0x"
    # Whichever end notices first.
    fails 2 'nak@100' "rank 0: RDMA write to rank 1 failed: the remote key does not cover the remote memory|$refused"
    fails 2 'error=0x04@100' 'rank 1: RDMA write to rank 0 failed: the local key does not cover the local memory'
    ;;
esac
exit $failed
