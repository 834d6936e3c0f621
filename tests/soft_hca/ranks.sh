# shellcheck shell=bash disable=SC2154,SC2034
# To be sourced by tests of the whole library over the software adapter: ranks that moerun starts, with
# libfakemlx5.so in front of libibverbs. What posters did wrong must be nothing. The caller has set `moerun`, `tests`
# and `library` (libfakemlx5.so), and exits with $failed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sockets=$work/sockets report=$work/report output=$work/output
mkdir "$work/temporary" # who is killed leaves a fake sysfs behind
export SOFT_HCA_DIR=$sockets SOFT_HCA_REPORT=$report TMPDIR=$work/temporary
export MOECOMM_LOG_LEVEL=${MOECOMM_LOG_LEVEL:-none}
# The adapter reads and writes as hardware does: the thread sanitizer is not to look at its memcpy.
export TSAN_OPTIONS=ignore_noninstrumented_modules=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}
failed=0
# What rank 1 says when its adapter refuses a write of rank 0, and ends the queue pair.
refused="rank 1: the connection with rank 0 broke: the adapter here has refused what that rank wrote"

# Runs tests between so many ranks; the adapters of all ranks, or of the last one alone, have the mishaps.
start() { # nranks, domain size, faults, faults of the last rank, filter
  rm -rf "$sockets" "$report"
  mkdir "$sockets"
  # shellcheck disable=SC2016 # the rank's shell reads them
  local rank='[ "$MOECOMM_RANK" != "$LAST" ] || SOFT_HCA_FAULTS=$FAULTS_OF_LAST; export SOFT_HCA_FAULTS
    LD_PRELOAD=$LIBRARY exec "$@"'
  LIBRARY=$library LAST=$(($1 - 1)) FAULTS_OF_LAST=${4:-$3} SOFT_HCA_FAULTS=$3 MOECOMM_DOMAIN_SIZE=$2 \
    timeout 300 "$moerun" -n "$1" sh -c "$rank" rank "$tests" --gtest_filter="$5" >"$output" 2>&1
}

seconds_since() { awk "BEGIN { printf \"%.1f s\", $(date +%s.%N) - $1 }"; }

complain() { # what
  echo "FAILED: $1"
  grep -v -e ' RUN  ' -e '       OK ' "$output" | tail -n 30
  head -n 20 "$report" 2>/dev/null
  failed=1
}

# All ranks' tests pass.
right() { # nranks, domain size, faults, filter
  local begin what="$1 ranks in domains of $2, ${3:-no mishaps}${MOECOMM_RDMA_DOORBELL:+, doorbell by $MOECOMM_RDMA_DOORBELL}"
  begin=$(date +%s.%N)
  if ! start "$1" "$2" "$3" "" "$4"; then
    complain "$what: not right"
  elif [ "$(grep -c '\[  PASSED  \] [1-9]' "$output")" != "$1" ]; then
    complain "$what: not all ranks have run tests"
  elif [ -s "$report" ]; then
    complain "$what: the posters did wrong"
  else
    echo "$what: right ($(seconds_since "$begin"))"
  fi
}

# The last rank's adapter has a mishap that cannot be made up for: a rank's sentence says so and names a rank.
fails() { # nranks, faults of the last rank, sentence (a regular expression)
  local begin
  begin=$(date +%s.%N)
  if start "$1" 1 "" "$2" '*Step.TwoHandlesMayBeInterleaved/Host'; then
    complain "$2: nobody has noticed"
  elif ! grep -q -E "$3" "$output"; then
    complain "$2: no rank says $3"
  elif [ -s "$report" ]; then
    complain "$2: the posters did wrong"
  else
    echo "$2: $(grep -m1 -o -E "$3" "$output") ($(seconds_since "$begin"))"
  fi
}
