#!/bin/bash
# Groups that lose one rank after another, until one is left. Every survivor must go on with right results.
# Usage: survive_test.sh MOERUN SURVIVOR_RANK [host|cuda] [NRANKS] [ROUNDS]
#   FIRST_SEED   of the rounds' plans (1)
#   SURVIVE_JOBS rounds at once (1)
set -u
moerun=$1 program=$2 backend=${3:-host} nranks=${4:-5} rounds=${5:-20}
first=${FIRST_SEED:-1} jobs=${SURVIVE_JOBS:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

try() { # seed
  local seed=$1 log=$work/$1.log status directory
  directory=$(mktemp -d -p "$work")
  MOECOMM_LOG_LEVEL=none timeout 90 "$moerun" -n "$nranks" --grace 60 "$program" --backend "$backend" --seed "$seed" \
    --directory "$directory" >"$log" 2>&1
  status=$?
  if [ "$status" = 124 ] || ! grep -q 'survivor ' "$log" || grep -q -E 'FAILED|Failure|Sanitizer|runtime error' "$log"
  then
    { echo "FAILED: seed $seed: status $status"; cat "$log"; } >>"$work/failures"
  else
    echo "ok: seed $seed: $(grep -o 'survivor .*' "$log")"
  fi
}

for ((seed = first; seed < first + rounds; ++seed)); do
  while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n; done
  try "$seed" &
done
wait
if [ -e "$work/failures" ]; then
  cat "$work/failures"
  exit 1
fi
