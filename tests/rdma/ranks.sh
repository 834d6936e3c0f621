# shellcheck shell=bash disable=SC2154,SC2034
# To be sourced by tests of the whole library over the software adapter. moerun starts the ranks with libfakemlx5.so in
# front of libibverbs. Posters must make no mistake and give everything back, and each requested mishap must have
# happened. The caller sets `moerun`, `tests`, `mishap_rank` and `library` (libfakemlx5.so), and exits with $failed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sockets=$work/sockets report=$work/report counts=$work/counts output=$work/output
mkdir "$work/temporary" # a killed process leaves a fake sysfs behind
export FAKE_MLX5_DIR=$sockets FAKE_MLX5_REPORT=$report FAKE_MLX5_COUNTS=$counts TMPDIR=$work/temporary
export MOECOMM_LOG_LEVEL=${MOECOMM_LOG_LEVEL:-none}
# The adapter reads and writes as hardware does, so the thread sanitizer must not check its memcpy.
export TSAN_OPTIONS=ignore_noninstrumented_modules=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
failed=0
# The report of rank 1 when its adapter refuses a write of rank 0 and ends the queue pair.
refused="rank 1: the connection with rank 0 broke: the adapter here has refused that rank's writes"
# Every kind of mishap that the adapters make up for, except rnr. rnr strikes requests that take a receive, and puts are
# plain writes, which take none.
all_mishaps='seed=4 drop=10 delay=30 duplicate=50 reorder=50 slow_cqe=50 ignore_doorbell=2'
# A lost packet costs half a second, and a peer is given up after four. The second value is for runs with a peer that
# does not answer: it is given up after two.
patient=17 impatient=16
# A failing rank has this long for the failing call, and as long again for leaving. mishap_rank checks that, with three
# extra seconds for a busy machine. A rank that takes much longer hangs.
timeout_ms=8000 limit=60

# Runs a program on this many ranks. The adapters of all ranks, or of the last one alone, have the mishaps.
start() { # seconds, nranks, domain size, faults, faults of the last rank, command...
  local limit=$1 nranks=$2 size=$3 faults=$4 faults_of_last=$5
  shift 5
  rm -rf "$sockets" "$report" "$counts"
  mkdir "$sockets"
  : >"$counts"
  # shellcheck disable=SC2016 # the rank's shell expands it
  local rank='[ "$MOECOMM_RANK" != "$LAST" ] || FAKE_MLX5_FAULTS=$FAULTS_OF_LAST; export FAKE_MLX5_FAULTS
    LD_PRELOAD=$LIBRARY exec "$@"'
  LIBRARY=$library LAST=$((nranks - 1)) FAULTS_OF_LAST=${faults_of_last:-$faults} FAKE_MLX5_FAULTS=$faults \
    MOECOMM_DOMAIN_SIZE=$size timeout "$limit" "$moerun" -n "$nranks" sh -c "$rank" rank "$@" >"$output" 2>&1
}

seconds_since() { awk "BEGIN { printf \"%.1f s\", $(date +%s.%N) - $1 }"; }

complain() { # description
  echo "FAILED: $1"
  grep -v -e ' RUN  ' -e '       OK ' "$output" | tail -n 30
  head -n 20 "$report" 2>/dev/null
  failed=1
}

# Prints what went wrong, whatever was expected. Prints nothing if all is well.
trouble() { # status, faults
  local status=$1 each name
  if [ "$status" = 124 ]; then
    echo "it hangs"
  elif grep -q -E 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' "$output"; then
    echo "a sanitizer complains"
  elif [ "$status" -gt 127 ]; then
    echo "a rank crashed (status $status)"
  elif [ -s "$report" ]; then
    echo "the posters did wrong"
  elif [ -n "$(ls "$sockets")" ]; then
    echo "sockets of adapters are left"
  else
    for each in $2; do
      name=${each%%[=@]*}
      [ "$name" = seed ] || [ "$(happened "$name")" -gt 0 ] || { echo "no $name has happened" && return; }
    done
  fi
}

# Prints how often a mishap happened, summed over the ranks.
happened() { # fault
  awk -v name="$1" '{ for (i = 3; i < NF; ++i) if ($i == name) sum += $(i + 1) } END { print sum + 0 }' "$counts"
}

# Prints "drop 12, delay 3".
happenings() { # faults
  local each text='' name
  for each in $1; do
    name=${each%%[=@]*}
    [ "$name" = seed ] || text="$text, $name $(happened "$name")"
  done
  [ -z "$text" ] || echo "${text#, }; "
}

# Expects all ranks' tests to pass.
right() { # nranks, domain size, faults, filter
  local begin status what wrong
  what="$1 ranks in domains of $2, ${3:-no mishaps}${MOECOMM_RDMA_DOORBELL:+, doorbell by $MOECOMM_RDMA_DOORBELL}"
  begin=$(date +%s.%N)
  start 300 "$1" "$2" "$3" "" "$tests" --gtest_filter="$4"
  status=$?
  wrong=$(trouble "$status" "$3")
  if [ -n "$wrong" ]; then
    complain "$what: $wrong"
  elif [ "$status" != 0 ]; then
    complain "$what: not right"
  elif [ "$(grep -c '\[  PASSED  \] [1-9]' "$output")" != "$1" ]; then
    complain "$what: not all ranks have run tests"
  else
    echo "$what: right ($(happenings "$3")$(seconds_since "$begin"))"
  fi
}

# Expects all ranks of mishap_rank to end properly with this result, to print it, and to hold nothing more.
ended() { # what, nranks, faults, result, status
  local wrong
  wrong=$(trouble "$5" "$3")
  if [ -n "$wrong" ]; then
    complain "$1: $wrong"
  elif [ "$5" != 0 ] || [ "$(grep -c 'ended [0-9]*: .*: '"$4"':' "$output")" != "$2" ]; then
    complain "$1: not all ranks end with $4"
  else
    return 0
  fi
  return 1
}

# Expects nothing to be left after some steps without a mishap.
leaves_nothing() { # nranks, domain size
  local mode status what
  for mode in ht ll; do
    what="$1 ranks in domains of $2, $mode"
    start "$limit" "$1" "$2" "" "" "$mishap_rank" --steps 20 --mode $mode
    status=$?
    ! ended "$what" "$1" "" moeSuccess "$status" || echo "$what: nothing is left"
  done
}

# Expects a failure: the last rank's adapter has a mishap that cannot be made up for. All ranks must end in time with
# moeRemoteError and name another rank. One of them uses this sentence. Nothing may be left.
fails() { # nranks, faults of the last rank, sentence (a regular expression)
  local status
  start "$limit" "$1" 1 "" "$2" "$mishap_rank" --timeout-ms $timeout_ms
  status=$?
  ended "$2" "$1" "$2" moeRemoteError "$status" || return
  if ! grep -q -E "$3" "$output"; then
    complain "$2: no rank says $3"
  else
    echo "$2: moeRemoteError, $(grep -m1 -o -E "$3" "$output") ($(happenings "$2")$(
      grep -o 'then [0-9.]* s' "$output" | sort -k2 -n | tail -n 1 | cut -d' ' -f2-3))"
  fi
}

# Kills ranks and stops one, by kill_test.sh. Ranks that die do not give anything back.
kills() { # kill_test.sh, nranks, domain size
  rm -rf "$sockets" "$report"
  mkdir "$sockets"
  # shellcheck disable=SC2016 # the rank's shell expands it
  LIBRARY=$library MOECOMM_DOMAIN_SIZE=$3 KILL_ROUNDS=few KILL_PREFIX='LD_PRELOAD=$LIBRARY exec "$@"' \
    "$1" "$moerun" "$kill_rank" host "$2" || failed=1
  [ ! -s "$report" ] || complain "kills: the posters did wrong"
}
