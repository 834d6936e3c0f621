#!/bin/bash
# Kills one rank of a group with SIGKILL, or stops it with SIGSTOP, at many points. Every survivor must name the victim
# in time, continue in a new group, and leave nothing behind.
# Usage: kill_test.sh MOERUN KILL_RANK [host|cuda] [NRANKS]
#   MOECOMM_DOMAIN_SIZE, MOECOMM_TRANSPORT  run across domains; survivors whose number the size does not divide get
#                                           domains of one rank
#   KILL_ROUNDS=few    only seven rounds
#   KILL_ROUNDS=steps  only two rounds, in steps, with 20 s for each wait: for slow machines
#   KILL_PREFIX  what a rank's shell runs first; ends with exec "$@"
#   KILL_JOBS    rounds at once (1); a round spends most of its time waiting for deadlines
set -u
moerun=$1 program=$2 backend=${3:-host} nranks=${4:-3}
prefix=${KILL_PREFIX:-exec \"\$@\"}
jobs=${KILL_JOBS:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

round() { # arguments of kill_rank
  while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n; done
  try "$@" &
}

try() { # arguments of kill_rank
  local directory log status survivors problem=
  directory=$(mktemp -d -p "$work")
  log=$directory/log
  MOECOMM_LOG_LEVEL=none timeout 60 "$moerun" -n "$nranks" --grace 20 sh -c "$prefix" rank "$program" \
    --backend "$backend" --directory "$directory" "$@" >"$log" 2>&1
  status=$?
  survivors=$(grep -c 'survivor ' "$log")
  # The killed rank ends first, so moerun ends with 137 (128 + SIGKILL).
  if [ "$survivors" -ne $((nranks - 1)) ]; then
    problem="$survivors of $((nranks - 1)) survivors"
  elif [ "$status" = 124 ]; then
    problem="somebody hangs"
  elif grep -q -E 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' "$log"; then
    problem="a sanitizer complains"
  elif [ "$status" != 137 ]; then
    problem="status $status"
  fi
  if [ -n "$problem" ]; then
    { echo "FAILED: $*: $problem"; cat "$log"; } >>"$work/failures"
  else
    echo "ok: $*: $(grep -o 'then .*' "$log" | sort -k2 -n | tail -n 1)"
  fi
  rm -rf "$directory"
}

if [ "${KILL_ROUNDS:-all}" = few ]; then
  round --point init --victim $((nranks - 1)) --delay-ms 10 --timeout-ms 3000
  round --point between --victim 0 --mode ht
  round --point inside --victim $((nranks - 1)) --delay-ms 7 --mode ll
  round --point stuck --victim $((nranks - 1)) --mode ht --timeout-ms 2000
  round --point stuck --victim 0 --mode ll --timeout-ms 2000
  round --point asleep --victim 0 --mode ll
  round --point recovering --victim 0 --delay-ms 1 --mode ht
elif [ "${KILL_ROUNDS:-all}" = steps ]; then
  round --point between --victim 0 --mode ht --timeout-ms 20000
  round --point inside --victim $((nranks - 1)) --delay-ms 7 --mode ll --timeout-ms 20000
else
  round --point never --victim 1 --timeout-ms 1500
  for victim in 0 $((nranks - 1)); do
    for delay in 0 3 10 30; do round --point init --victim $victim --delay-ms $delay --timeout-ms 3000; done
    for mode in ht ll; do
      round --point between --victim $victim --mode $mode
      for delay in 1 7 20; do round --point inside --victim $victim --delay-ms $delay --mode $mode; done
      round --point asleep --victim $victim --mode $mode
      for delay in 0 2 9; do round --point waking --victim $victim --delay-ms $delay --mode $mode; done
      for delay in 0 1 3; do round --point recovering --victim $victim --delay-ms $delay --mode $mode; done
    done
  done
  for victim in 0 $((nranks - 1)); do
    for mode in ht ll; do
      round --point stuck --victim $victim --mode $mode --timeout-ms 2000
      round --point stuck-asleep --victim $victim --mode $mode --timeout-ms 2000
      round --point stuck-recovering --victim $victim --mode $mode --timeout-ms 2000
      for delay in 1 7; do
        round --point stuck-inside --victim $victim --delay-ms $delay --mode $mode --timeout-ms 2000
      done
    done
  done
fi
wait
if [ -e "$work/failures" ]; then
  cat "$work/failures"
  failed=1
fi
if find /dev/shm -name '*moecomm*' 2>/dev/null | grep -q .; then
  echo "FAILED: something is left in /dev/shm"
  failed=1
fi
exit $failed
