#!/bin/sh
# Runs moe_perf over the host backend. Tests every layout, mode and option once, the report and the exit statuses.
# Usage: moe_perf_test.sh PATH_OF_MOE_PERF PATH_OF_MOERUN
set -u
perf=$1
moerun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

small="--backend host --tokens 0,17 --hidden 512 --topk 4 --experts 10 --iters 3 --warmup 1"

# Expects correct results, with one line of the table per token count.
run() {
  # The words of $small are separate arguments.
  # shellcheck disable=SC2086
  if ! "$perf" --ranks-as-threads 3 $small "$@" >"$work/out" 2>"$work/err"; then
    fail "moe_perf $*"
    cat "$work/out" "$work/err"
  elif [ "$(grep -c ' correct' "$work/out")" != 2 ]; then
    fail "moe_perf $*: not two correct cases"
    cat "$work/out"
  fi
}

for mode in ht ll; do
  for layout in flat expert-major expert-major-padded rank-major; do
    for format in bf16 fp8; do run --mode $mode --layout $layout --format $format; done
  done
done
for cast in fp8 fp8-pow2 mxfp8 mxfp4 nvfp4; do run --mode ll --layout rank-major --cast $cast; done
for layout in flat expert-major expert-major-padded rank-major; do
  run --mode ht --layout $layout --cast fp8
  run --mode ht --layout $layout --cast mxfp4 --window 0 --scales token-contiguous
done
run --mode ll --layout expert-major-padded --format fp32 --cast fp8-ue8m0
run --mode ll --layout expert-major-padded --cast nvfp4 --scales token-contiguous
for layout in flat expert-major expert-major-padded; do
  run --mode ll --layout $layout --cast fp8 --scales token-contiguous
done
for layout in flat expert-major expert-major-padded rank-major; do
  run --mode ht --layout $layout --cast nvfp4 --scales 128x4
  run --mode ll --layout $layout --window 0 --cast mxfp8 --scales 128x4
done
run --mode ll --layout rank-major --window 0 --cast fp8-ue8m0 --scales token-contiguous --json "$work/cast.json"
[ "$(grep -c '"scales": "token-contiguous",' "$work/cast.json")" = 2 ] || fail 'the report does not name the scales'
for wire in fp8 fp8-block logfmt10 nvfp4; do
  for layout in flat expert-major rank-major; do
    run --mode ll --layout $layout --wire $wire
    run --mode ht --layout $layout --wire $wire --json "$work/wire.json"
  done
done
[ "$(grep -c '"wire": "nvfp4",' "$work/wire.json")" = 2 ] || fail 'the report does not name the wire format'
run --mode ll --layout rank-major --format fp8 --wire nvfp4
run --format fp16 --layout expert-major --weights applied
run --format fp32 --mode auto
run --routing zipf --interleave
run --routing group-limited --groups 5 --groups-per-token 2 --layout expert-major
grep -q 'routing group-limited (2 of 5 groups)' "$work/out" || fail 'the header does not name the groups'
run --routing one-rank --send-only
run --routing empty
run --window 0 --interleave --send-only --layout expert-major
run --mode ll --layout rank-major --describe 0
run --mode ht --interleave --send-only
run --verify-every 2 --seed 99 --timeout-ms 20000
grep -q 'over 3 iterations of the slowest rank, every operation timed alone$' "$work/out" ||
  fail 'the header does not say that operations are timed alone'

# Chains, and more verified iterations than timed ones.
for mode in ht ll; do
  run --mode $mode --layout rank-major --chain 3 --timed 2 --json "$work/chain.json"
  grep -q 'over 2 iterations of the slowest rank, each the mean of 3 in a row$' "$work/out" || fail 'the header of a chain'
  [ "$(grep -c -e '"iters": 3,' -e '"timed": 2,' -e '"chain": 3,' "$work/chain.json")" = 6 ] ||
    fail 'the report of a chain has not its iterations'
done
run --timed 5
grep -q 'over 5 iterations ' "$work/out" || fail 'more timed iterations than verified ones'

# Domains whose ranks reach each other only by puts.
run_domains() {
  # shellcheck disable=SC2086
  if ! "$perf" --ranks-as-threads 4 $small --domain-size 2 --transport tcp "$@" --json "$work/report.json" \
    >"$work/out" 2>"$work/err"; then
    fail "moe_perf $* across domains"
    cat "$work/out" "$work/err"
  elif [ "$(grep -c ' correct' "$work/out")" != 2 ]; then
    fail "moe_perf $* across domains: not two correct cases"
    cat "$work/out"
  fi
  grep -q '^4 ranks in 2 domains joined by TCP, host ' "$work/out" || fail "the header of $* does not name the domains"
  [ "$(grep -c '"domains": 2,' "$work/report.json")" = 2 ] || fail "the report of $* does not name the domains"
}
for mode in ht ll; do
  for layout in flat expert-major rank-major; do run_domains --mode $mode --layout $layout; done
done
run_domains --mode ht --interleave --send-only
run_domains --mode ll --cast fp8
run_domains --mode ht --cast nvfp4
for mode in ht ll; do run_domains --mode $mode --layout expert-major --wire nvfp4; done
[ "$("$perf" --ranks-as-threads 4 --backend host --domain-size 3 >/dev/null 2>"$work/err"; echo $?)" = 1 ] &&
  grep -q 'domainSize is 3, which does not divide the 4 ranks' "$work/err" || fail 'domains that do not fit the ranks'

# The transport alone, between ranks that are threads and ranks that are processes.
test_transport() {
  if ! "$@" --transport-test --transport tcp --json "$work/transport.json" >"$work/out" 2>"$work/err"; then
    fail "$* --transport-test"
    cat "$work/out" "$work/err"
  fi
}
test_transport "$perf" --ranks-as-threads 4 --domain-size 2
[ "$(grep -c -- ' -> .* correct$' "$work/out")" = 8 ] || fail 'not each two ranks of different domains were tested'
test_transport "$moerun" -n 2 --timeout 60 "$perf"
[ "$(grep -c -- ' -> .* correct$' "$work/out")" = 2 ] || fail 'not both ways between two processes were tested'
for name in transport_test nranks domains transport pairs; do
  [ "$(grep -c "\"$name\":" "$work/transport.json")" = 1 ] || fail "the report of a transport has no $name"
done
for name in from to rounds wrong_rounds round_trip_us puts; do
  [ "$(grep -c "\"$name\":" "$work/transport.json")" = 2 ] || fail "the report of a transport has no $name for each pair"
done
[ "$(grep -c '"bytes":' "$work/transport.json")" = 14 ] || fail 'the report of a transport has not seven sizes'

# The report, with ranks that are processes.
# shellcheck disable=SC2086
"$moerun" -n 2 --timeout 60 "$perf" $small --json "$work/report.json" >/dev/null 2>"$work/err" || {
  fail 'moe_perf under moerun'
  cat "$work/err"
}
for name in backend mode layout format tokens hidden topk experts sms iters timed chain warmup graph interleave \
  routing seed weights window send-only ceiling nranks wrong_payloads wrong_metadata wrong_combines \
  max_rel_error dispatch_sms combine_sms dispatch_us combine_us pair_us step_us remote_bytes remote_gbps \
  logical_gbps memcpy_gbps dispatch_vs_memcpy; do
  [ "$(grep -c "\"$name\":" "$work/report.json")" = 2 ] || fail "the report has no $name in each case"
done

# Routes of a file, as numpy.save writes it: version 1, a header of 118 bytes, then [1][2][3][2] ids.
{
  printf '\223NUMPY\001\000\166\000'
  printf '%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2, 3, 2), }"
  printf '\000\000\000\000\001\000\000\000\002\000\000\000\377\377\377\377\003\000\000\000\000\000\000\000'
  printf '\003\000\000\000\002\000\000\000\001\000\000\000\003\000\000\000\377\377\377\377\377\377\377\377'
} >"$work/routing.npy"
"$perf" --backend host --ranks-as-threads 2 --hidden 256 --tokens 3 --topk 2 --experts 4 --iters 4 \
  --routing-file "$work/routing.npy" >"$work/out" 2>"$work/err" || {
  fail 'routes of a file'
  cat "$work/err"
}
grep -q 'routing of routing.npy' "$work/out" || fail 'the table does not name the file with routes'
"$perf" --backend host --ranks-as-threads 2 --hidden 256 --tokens 3 --topk 2 --experts 3 --iters 4 \
  --routing-file "$work/routing.npy" >/dev/null 2>"$work/err" && fail 'a file that names more experts was taken'
grep -q 'it names expert 3, but --experts is 3' "$work/err" || fail 'an expert that is too large is not named'

# A soak gives one result, whether its ranks are threads or processes.
soak="--backend host --hidden 512 --topk 4 --experts 10 --tokens 64 --json $work/soak.json"
# shellcheck disable=SC2086
run_soak() {
  iterations=$1
  shift
  if ! "$@" $soak --soak "$iterations" >"$work/out" 2>"$work/err"; then
    fail "$* --soak $iterations"
    cat "$work/out" "$work/err"
  elif ! grep -q ": $iterations iterations .*: correct" "$work/out"; then
    fail "$* --soak $iterations: no correct result"
    cat "$work/out"
  fi
}
run_soak 600 "$perf" --ranks-as-threads 4 --mode ll
run_soak 400 "$perf" --ranks-as-threads 4 --mode ht
grep -q '"ll_iterations": 0,' "$work/soak.json" || fail 'a soak of HT has LL iterations'
run_soak 300 "$moerun" -n 3 --timeout 60 "$perf" --seed 7 --faults-one-in 20
grep -q ' of them had a fault' "$work/out" || fail 'a soak with faults does not say how many there were'
for name in backend mode tokens hidden topk experts sms soak faults_one_in graph seed nranks device iterations \
  ll_iterations faults shapes \
  wrong_payloads wrong_metadata wrong_combines max_rel_error wrong_shapes seconds; do
  [ "$(grep -c "\"$name\":" "$work/soak.json")" = 1 ] || fail "the report of a soak has no $name"
done

# Refusals. The options that exclude each other are in a table, which perf_options_test.cc tests.
status_of() {
  "$perf" "$@" >/dev/null 2>&1
  echo $?
}
[ "$(status_of --layout square)" = 2 ] || fail 'an unknown layout'
[ "$(status_of --topk 9 --experts 8)" = 2 ] || fail 'options that do not go together'
[ "$(env CUDA_VISIBLE_DEVICES='' "$perf" --ranks-as-threads 2 --ceiling >/dev/null 2>&1; echo $?)" = 2 ] ||
  fail 'a ceiling without a GPU'
[ "$(status_of --backend host --ranks-as-threads 2 --graph --hidden 64)" = 1 ] || fail 'graphs without a GPU'
[ "$(status_of --transport-test --ranks-as-threads 1)" = 1 ] || fail 'a transport test of one rank'
"$perf" --backend host --ranks-as-threads 2 --soak 10 --graph --hidden 64 2>&1 | grep -q 'no graphs (after 0 iter' ||
  fail 'a soak that breaks off does not say where'
[ "$(env -i "$perf" --backend host >/dev/null 2>&1; echo $?)" = 1 ] || fail 'no launcher'

if [ $failures -gt 0 ]; then
  echo "$failures checks failed"
  exit 1
fi
echo 'all checks passed'
