#!/bin/bash
# Checks what only GPUs can show: device arithmetic bit for bit against the CPU, the C API's tests on the cuda backend
# between threads and between processes, killed ranks, long verified runs, steps that post to an RDMA adapter in
# software, and compute-sanitizer. Needs a CUDA build and 1 to 8 GPUs. Ranks share GPUs if there are fewer of them.
# Usage: scripts/gpu_test.sh BUILD_DIRECTORY [LOG_DIRECTORY] [PART]...
#   math api kill       device arithmetic; the C API's tests; killed ranks
#   perf                every case of the project's goals, few iterations, and the table of goals (scripts/goals.py)
#   accept              the sizes of the project's acceptance: 1000 verified iterations
#   soak                100,000 LL and 10,000 HT verified iterations in random shapes
#   remote              domains joined by the RDMA adapter in software
#   host_bench          what calls cost the host; left out if it was not built
#   sanitizer           compute-sanitizer
# Without a part it runs all of them. Environment:
#   RANKS=4             ranks of perf, accept, soak and remote, one process each
#   OUT=LOG_DIRECTORY   folder for the JSON reports, one file for each run of moe_perf
set -u
build=$(realpath "$1")
logs=$(realpath "${2:-.}")
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- math api kill perf accept soak remote host_bench sanitizer
ranks=${RANKS:-4} out=${OUT:-$logs}
mkdir -p "$logs" "$out"
here=$(dirname "$(realpath "$0")")
find_program() { find "$build" -name "$1" -type f -perm -u+x | head -1; }
moerun=$(find_program moerun) perf=$(find_program moe_perf)
api=$(find_program moecomm_api_tests) kill=$(find_program moecomm_kill_rank) math=$(find_program moecomm_gpu_tests)
export MOECOMM_LOG_LEVEL=error
# Ranks that are threads of one process on one GPU have a stream each, and all streams must run at once. The default is
# 8.
export CUDA_DEVICE_MAX_CONNECTIONS=32
failed=0

check() { # name, command...: logs its output and shows the last lines
  local name=$1 log=$logs/$1.log
  shift
  if timeout "${limit:-300}" "$@" >"$log" 2>&1; then echo "passed: $name"; else echo "FAILED: $name (see $log)" && failed=1; fi
  grep -E 'correct|elements are wrong|WRONG|PASSED|ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -"${lines:-4}" | cut -c1-200
}

step_math() { check math "$math"; }

step_api() {
  check api-threads "$api" --gtest_filter='*Cuda*'
  check api-processes "$moerun" -n 4 "$api" --gtest_filter='*Step.*Cuda*'
  check sleep-processes "$moerun" -n 2 "$api" --gtest_filter='*Sleep*Cuda*:*SleepCallsOnGpus*'
  # The program reports wrong sums, and how long before the end of dispatch its experts started.
  check expert-overlap "$moerun" -n 4 "$(find_program moecomm_example_overlap)"
}

step_kill() { check kill "$here/../tests/api/kill_test.sh" "$moerun" "$kill" cuda 4; }

# Processes that share a GPU take turns on it, and an iteration takes a hundred times as long. With NVIDIA's MPS their
# kernels run side by side. Killed ranks and compute-sanitizer do not go with it, so only measurements use it.
share_gpus() {
  local control
  [ "$(nvidia-smi -L | wc -l)" -lt "$ranks" ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || return 0
  control=$(command -v nvidia-cuda-mps-control) || control=/usr/local/nvidia/bin/nvidia-cuda-mps-control
  [ -x "$control" ] || { echo "no nvidia-cuda-mps-control: ranks take turns on their GPU" && return 0; }
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$logs
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  "$control" -d && shares_gpus=$control
}
stop_sharing() {
  [ -z "$shares_gpus" ] || echo quit | "$shares_gpus" >/dev/null
  [ -z "$shares_gpus" ] || unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  shares_gpus=
}
shares_gpus=
trap stop_sharing EXIT

# Runs moe_perf and keeps its report.
measure() { # name, options...
  local name=$1
  shift
  check "$name" "$moerun" --no-tag -n "$ranks" "$perf" --backend cuda "$@" --json "$out/$name.json"
}

# A run takes seconds before it measures, so cases that differ only in token counts share one run.
step_perf() {
  local limit=120 lines=8 sms routing mode
  rm -f "$out"/goal-*.json
  local throughput=(--mode ht --graph --ceiling --iters 6 --timed 20 --warmup 2 --chain 5)
  local latency=(--mode ll --graph --ceiling --iters 6 --timed 50 --warmup 2 --chain 20)
  for sms in 8 32; do measure "goal-ht-flat-$sms" "${throughput[@]}" --sms "$sms" --tokens 4096; done
  for sms in 16 0; do measure "goal-ht-flat-$sms" "${throughput[@]}" --sms "$sms" --tokens 4096,8192; done
  measure goal-ht-expert-major "${throughput[@]}" --layout expert-major --sms 24 --tokens 4096,8192
  measure goal-ht-fp8 "${throughput[@]}" --format fp8 --sms 16 --tokens 4096
  measure goal-ll-rank-major "${latency[@]}" --layout rank-major --tokens 1,8,32,64,128,512
  measure goal-ll-rank-major-cast "${latency[@]}" --layout rank-major --cast fp8 --tokens 8,128
  measure goal-ll-padded "${latency[@]}" --layout expert-major-padded --tokens 8,128
  measure goal-ll-padded-cast "${latency[@]}" --layout expert-major-padded --cast fp8 --scales token-contiguous --tokens 8,128
  for routing in zipf one-rank group-limited; do
    measure "goal-ht-$routing" "${throughput[@]}" --routing "$routing" --sms 16 --tokens 4096
    measure "goal-ll-$routing" "${latency[@]}" --routing "$routing" --layout rank-major --tokens 128
  done
  for mode in ll ht auto; do
    measure "goal-sweep-$mode" --mode "$mode" --graph --iters 4 --timed 20 --warmup 2 --chain 5 \
      --tokens 1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192
  done
  python3 "$here/goals.py" "$out"/goal-*.json || failed=1
}

# Verifies every payload and every sum.
step_accept() {
  local ht="--mode ht --tokens 4096 --iters 1000" ll="--mode ll --layout rank-major --tokens 128 --iters 1000" more
  for more in "" --graph --interleave --send-only --ceiling; do
    # shellcheck disable=SC2086 # words
    measure "ht$more" $ht $more
    # shellcheck disable=SC2086
    measure "ll$more" $ll $more
  done
}

step_soak() {
  measure soak-ll --mode ll --soak 100000 --tokens 128
  measure soak-faults-ll --mode ll --soak 10000 --faults-one-in 20 --tokens 128
  measure soak-ht --mode ht --soak 10000 --tokens 4096
}

step_host_bench() {
  local bench
  bench=$(find_program host_bench)
  [ -n "$bench" ] || { echo "skipped: host_bench was not built" && return; }
  lines=40 check host_bench "$bench" --benchmark_min_time=0.1 --benchmark_out="$out/host_bench.json" \
    --benchmark_out_format=json
}

# Domains of two ranks and of one, joined by the software adapter's queues, to which the kernels post. The sizes are
# those of the project's acceptance, with every payload and every sum verified. The adapter must report no mistakes of
# posters. The adapter is slow, and with domains of one rank everything goes through it, so those runs have fewer
# iterations.
step_remote() {
  local fake work size
  fake=$(find_program libfakemlx5.so)
  [ -n "$fake" ] || { echo "skipped: remote: the build has no libfakemlx5.so" && return; }
  work=$(mktemp -d)
  mkdir "$work/sockets" "$work/temporary"
  export FAKE_MLX5_DIR=$work/sockets FAKE_MLX5_REPORT=$logs/remote-report.txt TMPDIR=$work/temporary
  export MOECOMM_SOFT_UAR=1 MOECOMM_RDMA_ACK_TIMEOUT=18
  rm -f "$FAKE_MLX5_REPORT"
  for size in 2 1; do
    [ "$ranks" -gt "$size" ] || continue
    local ll=2000 ht=200 graph=10 soak=200
    [ "$size" -gt 1 ] || ll=200 ht=5 graph=2 soak=60
    # Without MPS, which ranks with an adapter in software have not been tried with.
    [ "$(nvidia-smi -L | wc -l)" -ge "$ranks" ] || ll=50 ht=3 graph=2 soak=20
    local perf_of="$moerun --no-tag -n $ranks env LD_PRELOAD=$fake $perf --backend cuda --transport ibgda --domain-size $size"
    # shellcheck disable=SC2086 # words
    {
      check "remote-ll-by-$size" $perf_of --mode ll --layout rank-major --tokens 128 --iters $ll --timed 10 --warmup 1
      limit=550 check "remote-ht-by-$size" $perf_of --mode ht --tokens 4096 --iters $ht --timed 2 --warmup 0
      check "remote-ll-graph-by-$size" $perf_of --mode ll --layout rank-major --tokens 128 --iters 50 --timed 5 \
        --warmup 1 --graph
      check "remote-ht-graph-by-$size" $perf_of --mode ht --tokens 4096 --iters $graph --timed 2 --warmup 0 --graph
      check "remote-soak-by-$size" $perf_of --soak $soak --tokens 256 --hidden 2048
    }
  done
  if [ -s "$FAKE_MLX5_REPORT" ]; then echo "FAILED: the posters did wrong (see $FAKE_MLX5_REPORT)" && failed=1; fi
  rm -rf "$work"
}

# Ranks are processes here, because compute-sanitizer runs only one kernel of a process at a time, and ours wait for
# each other.
step_sanitizer() {
  local tool
  for tool in memcheck racecheck; do
    lines=6 check "$tool" "$moerun" -n 2 compute-sanitizer --tool "$tool" --error-exitcode 9 "$api" \
      --gtest_filter='*EveryLayout*Cuda*:*RowsThatAreCast*Cuda*:*LargeBatches*Cuda*:*OutsideTheWindow*Cuda*:*SplitPhases*Cuda*:*TwoHandles*Cuda*'
  done
}

for step in "$@"; do
  case $step in perf | accept | soak) share_gpus ;; *) stop_sharing ;; esac
  "step_$step"
done
exit $failed
