#!/bin/bash
# Tests moe_perf --transport-test over the software adapter. It must report right puts and the transport that carried
# them, and must be able to report wrong ones.
# Usage: transport_test.sh MOERUN MOE_PERF libfakemlx5.so
set -u
moerun=$1 perf=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FAKE_MLX5_DIR=$work/sockets FAKE_MLX5_REPORT=$work/report TMPDIR=$work LIBRARY=$library
export FAKE_MLX5_DEVICES=2 MOECOMM_LOG_LEVEL=info
failed=0

# Runs two ranks and keeps their status and output.
run() { # options
  rm -rf "$FAKE_MLX5_DIR" "$FAKE_MLX5_REPORT"
  mkdir "$FAKE_MLX5_DIR"
  # shellcheck disable=SC2016 # the rank's shell expands it
  timeout 120 "$moerun" -n 2 sh -c 'LD_PRELOAD=$LIBRARY exec "$@"' rank "$perf" --transport-test "$@" >"$work/out" 2>&1
  status=$?
}

expect() { # name, status, how often, line (a regular expression)
  if [ "$status" != "$2" ] || [ "$(grep -c -E -- "$4" "$work/out")" != "$3" ] || [ -s "$FAKE_MLX5_REPORT" ]; then
    echo "FAILED: $1: status $status"
    cat "$work/out" "$FAKE_MLX5_REPORT" 2>/dev/null
    failed=1
  else
    echo "$1: $(grep -m1 -o -E -- "$4" "$work/out")"
  fi
}

wrong='WRONG: in 1 of 50 rounds a word came before its rows, or they were wrong'
for name in verbs IBGDA; do
  transport=$(echo "$name" | tr '[:upper:]' '[:lower:]')
  MOECOMM_NICS_PER_GPU=2 run --transport "$transport"
  expect "$name over two adapters" 0 2 ' -> .* correct$'
  expect "$name is named" 0 1 "^.*2 ranks in 2 domains joined by $name, transport test"
  expect "$name names the second adapter" 0 2 'net: rail 1: mlx5_1, Ethernet 400 Gb/sec'
  run --transport "$transport" --plant-wrong
  expect "a wrong row by $name" 1 2 "$wrong"
done
run --transport auto
expect 'auto' 0 1 '2 ranks in 2 domains joined by verbs'
# Not a library, but has the name of hwloc's.
mkdir "$work/lib"
: >"$work/lib/libhwloc.so.15"
LD_LIBRARY_PATH=$work/lib run --transport verbs
expect 'verbs without hwloc' 0 2 ' -> .* correct$'
expect 'verbs without hwloc warns' 0 2 'topo: the adapters near this rank are not known: libhwloc.so.15 cannot be loaded'
run --transport tcp --plant-wrong
expect 'a wrong row by TCP' 1 2 "$wrong"
exit $failed
