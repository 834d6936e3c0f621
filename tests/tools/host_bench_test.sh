#!/bin/sh
# Runs each benchmark of host_bench for an instant and demands that it measured something. Benchmarks that need a GPU
# may say that there is none. Usage: host_bench_test.sh PATH_OF_HOST_BENCH
set -u
bench=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

# Leaves out the all-gather of 512 ranks, which takes seconds and has a unit test.
"$bench" --benchmark_min_time=0.0001 --benchmark_filter=-AllGather/512 --benchmark_format=csv >"$work/out" 2>"$work/err" ||
  fail "exit status $?"

# A row's name, with what Google Benchmark appends to it, followed by the number of iterations.
measured() { grep -Eq "^\"$1(/iterations:[0-9]+)?(/manual_time)?\",[1-9]" "$work/out"; }
skipped() { grep -Eq "^\"$1(/manual_time)?\",.*,true,\"skipped: no GPU" "$work/out"; }

for shape in ht ht_4096 ht_4096_expert_major ll ll_expert_major; do
  for call in moeRoute moeDispatch moeCombine moeDispatch_sendOnly moeComplete_dispatch moeCombine_sendOnly \
    moeComplete_combine moeHandleGetDeviceCounts moeHandleGetCounts moeHandleCreate_Destroy; do
    echo "$call/$shape"
  done
done >"$work/calls"
printf '%s\n' moeGetLimits moeCommGetAsyncError moeCommGetInfo moeCommGetPeerInfo moeHandleGetView moeMemAlloc_Free >>"$work/calls"
while read -r call; do
  measured "$call/host" || fail "$call/host was not measured"
  measured "$call/cuda" || skipped "$call/cuda" || fail "$call/cuda was neither measured nor skipped for want of a GPU"
done <"$work/calls"
for name in Refused_null/host Refused_tokens/host Refused_hidden/host Nothing PlanLaunch/route \
  PlanLaunch/htDispatch PlanLaunch/llDispatch PlanLaunch/combine PlanParts/1 PlanParts/128 PlanParts/4096 \
  ReadStruct/moeDispatchArgs ResolveConfig AllGather/8 AllGather/64 Route1024/byHand \
  Route1024/byHandFor2Ranks Route1024/byLibrary; do
  measured "$name" || fail "$name was not measured"
done

"$bench" --no-such-option >/dev/null 2>&1
[ $? = 2 ] || fail 'an unknown option is not status 2'

if [ $failures -gt 0 ]; then
  cat "$work/out" "$work/err"
  echo "$failures checks failed"
  exit 1
fi
echo 'all checks passed'
