#!/bin/bash
# A group whose ranks are killed and replaced by new processes. The steps of all ranks must be right in every round.
# Usage: replace_test.sh REPLACE_RANK [NRANKS] [ROUNDS] [SEED...]
set -u
program=$1 nranks=${2:-4} rounds=${3:-6}
shift $(($# < 3 ? $# : 3))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for seed in "${@:-1}"; do
  directory=$(mktemp -d -p "$work")
  timeout 600 "$program" --directory "$directory" --ranks "$nranks" --rounds "$rounds" --seed "$seed" \
    >"$work/log" 2>&1
  status=$?
  members=$(grep -c '^member ' "$work/log")
  if [ "$status" != 0 ] || [ "$members" != "$nranks" ] || grep -q -E 'FAILED|Failure|Sanitizer|runtime error' "$work/log"
  then
    echo "FAILED: seed $seed: status $status, $members of $nranks members at the end"
    cat "$work/log"
    exit 1
  fi
  echo "ok: seed $seed: $(grep 'replaced ' "$work/log"); $(grep -m 1 '^member ' "$work/log")"
done
