#!/bin/bash
# What only GPUs can show: device arithmetic with the bits of the CPU, the C API's tests on the cuda backend, between
# threads and between processes, killed ranks, long verified runs, steps that post to an RDMA adapter in software, and
# compute-sanitizer. Needs a CUDA build and 1 to 8 GPUs; ranks share a GPU if there are fewer.
# Usage: scripts/gpu_test.sh BUILD_DIRECTORY [LOG_DIRECTORY] [math|api|kill|perf|remote|sanitizer]...
#   REMOTE_RANKS=4  ranks of `remote`, a process each
set -u
build=$(realpath "$1")
logs=$(realpath "${2:-.}")
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- math api kill perf remote sanitizer
here=$(dirname "$(realpath "$0")")
find_program() { find "$build" -name "$1" -type f -perm -u+x | head -1; }
moerun=$(find_program moerun) perf=$(find_program moe_perf)
api=$(find_program moecomm_api_tests) kill=$(find_program moecomm_kill_rank) math=$(find_program moecomm_gpu_tests)
export MOECOMM_LOG_LEVEL=error
# Ranks that are threads of a process on one GPU have a stream each, and all must run at once; the default is 8.
export CUDA_DEVICE_MAX_CONNECTIONS=32
failed=0

check() { # name, command...: its output goes to a log, its last lines are shown
  local name=$1 log=$logs/$1.log
  shift
  if timeout "${limit:-300}" "$@" >"$log" 2>&1; then echo "passed: $name"; else echo "FAILED: $name (see $log)" && failed=1; fi
  grep -E 'correct|WRONG|PASSED|ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -"${lines:-4}" | cut -c1-200
}

step_math() { check math "$math"; }

step_api() {
  check api-threads "$api" --gtest_filter='*Cuda*'
  check api-processes "$moerun" -n 4 "$api" --gtest_filter='*Step*Cuda*'
}

step_kill() { check kill "$here/../tests/api/kill_test.sh" "$moerun" "$kill" cuda 4; }

# The sizes of the project's acceptance: 1000 iterations, every payload and every sum verified.
step_perf() {
  local ht="--mode ht --tokens 4096 --iters 1000" ll="--mode ll --layout rank-major --tokens 128 --iters 1000" more
  for more in "" --graph --interleave --send-only --ceiling; do
    # shellcheck disable=SC2086 # words
    check "ht$more" "$moerun" --no-tag -n 4 "$perf" --backend cuda $ht $more --json "$logs/ht$more.json"
    # shellcheck disable=SC2086
    check "ll$more" "$moerun" --no-tag -n 4 "$perf" --backend cuda $ll $more --json "$logs/ll$more.json"
  done
}

# Domains of two ranks and of one, joined by the software adapter's queues, to which the kernels post: the sizes of the
# project's acceptance, every payload and every sum verified. Its report of what posters did wrong must be empty.
step_remote() {
  local ranks=${REMOTE_RANKS:-4} fake work size
  fake=$(find_program libfakemlx5.so)
  [ -n "$fake" ] || { echo "skipped: remote: the build has no libfakemlx5.so" && return; }
  work=$(mktemp -d)
  mkdir "$work/sockets" "$work/temporary"
  export SOFT_HCA_DIR=$work/sockets SOFT_HCA_REPORT=$logs/remote-report.txt TMPDIR=$work/temporary
  export MOECOMM_SOFT_UAR=1 MOECOMM_RDMA_ACK_TIMEOUT=18
  rm -f "$SOFT_HCA_REPORT"
  for size in 2 1; do
    [ "$ranks" -gt "$size" ] || continue
    local perf_of="$moerun --no-tag -n $ranks env LD_PRELOAD=$fake $perf --backend cuda --transport ibgda --domain-size $size"
    # shellcheck disable=SC2086 # words
    {
      check "remote-ll-by-$size" $perf_of --mode ll --layout rank-major --tokens 128 --iters 2000
      limit=550 check "remote-ht-by-$size" $perf_of --mode ht --tokens 4096 --iters 200
      check "remote-ll-graph-by-$size" $perf_of --mode ll --layout rank-major --tokens 128 --iters 100 --graph
      check "remote-ht-graph-by-$size" $perf_of --mode ht --tokens 4096 --iters 20 --graph
      check "remote-soak-by-$size" $perf_of --soak 200 --tokens 256 --hidden 2048
    }
  done
  if [ -s "$SOFT_HCA_REPORT" ]; then echo "FAILED: the posters did wrong (see $SOFT_HCA_REPORT)" && failed=1; fi
  rm -rf "$work"
}

# Ranks are processes here: the sanitizer runs one kernel of a process at a time, and ours wait for each other.
step_sanitizer() {
  local tool
  for tool in memcheck racecheck; do
    lines=6 check "$tool" "$moerun" -n 2 compute-sanitizer --tool "$tool" --error-exitcode 9 "$api" \
      --gtest_filter='*EveryLayout*Cuda*:*LargeBatches*Cuda*:*OutsideTheWindow*Cuda*:*SplitPhases*Cuda*:*TwoHandles*Cuda*'
  done
}

for step in "$@"; do "step_$step"; done
exit $failed
