#!/bin/bash
# Tests that ranks.sh finds what goes wrong. A script that imitates a bad run replaces moerun.
set -u
here=$(cd "$(dirname "$0")" && pwd)
moerun=moerun_in_place tests=none mishap_rank=none library=none
# shellcheck source=tests/rdma/ranks.sh
. "$here/ranks.sh"
moerun=$work/moerun limit=1 bad=0

# The output, counts and exit status of a good run. The planted defects come before it or replace it.
good='echo "[0] ended 0: after 5 steps, 0 wrong, then 0.10 s: moeRemoteError: rank 0 says why (left in 0.01 s)"
echo "[1] ended 1: after 5 steps, 0 wrong, then 0.10 s: moeRemoteError: rank 0 says why (left in 0.01 s)"
echo "process 16: drop 0 nak 0" >>$FAKE_MLX5_COUNTS
echo "process 17: drop 0 nak 1" >>$FAKE_MLX5_COUNTS'

expect() { # message of `fails`, faults, script that replaces moerun
  local said
  printf '#!/bin/bash\n%s\n' "$3" >"$moerun"
  chmod +x "$moerun"
  said=$(fails 2 "$2" 'rank 0 says why'; exit $failed)
  if { [ $? = 0 ] && [ "${1#FAILED}" != "$1" ]; } || ! head -n 1 <<<"$said" | grep -q -F "$1"; then
    echo "not '$1' but: $said"
    bad=1
  fi
}

expect 'nak@3: moeRemoteError, rank 0 says why (nak 1; 0.10 s)' nak@3 "$good"
expect 'FAILED: nak@3: it hangs' nak@3 "$good; exec sleep 10"
expect 'FAILED: nak@3: a rank crashed (status 139)' nak@3 "$good; exit 139"
expect 'FAILED: nak@3: a sanitizer complains' nak@3 "$good; echo '==7==ERROR: LeakSanitizer: leaks'; exit 23"
expect 'FAILED: nak@3: the posters did wrong' nak@3 "$good; echo 'a late write' >>\$FAKE_MLX5_REPORT"
expect 'FAILED: nak@3: sockets of adapters are left' nak@3 "$good; touch \$FAKE_MLX5_DIR/16"
expect 'FAILED: seed=1 drop=5: no drop has happened' 'seed=1 drop=5' "$good"
expect 'FAILED: nak@3: not all ranks end with moeRemoteError' nak@3 "$good; exit 1"
expect 'FAILED: nak@3: not all ranks end with moeRemoteError' nak@3 "{ $good; } | sed 1s/moeRemoteError/moeTimeout/"
expect 'FAILED: nak@3: not all ranks end with moeRemoteError' nak@3 "{ $good; } | sed 1d"
expect 'FAILED: nak@3: no rank says rank 0 says why' nak@3 "{ $good; } | sed 's/says why/is silent/'"
exit $bad
