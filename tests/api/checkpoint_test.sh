#!/bin/bash
# A group of the host backend whose processes are checkpointed with CRIU while it is disconnected, and restored. The
# steps after that must be right. A group that is only suspended must not be possible to checkpoint: otherwise the test
# shows nothing. Needs root and a kernel for CRIU, such as that of tests/rxe_vm/run.sh. Exits with 77, and CRIU's
# output, where CRIU cannot dump any process.
# Usage: checkpoint_test.sh CHECKPOINT_RANK [NRANKS] [ROUNDS]
set -u
program=$1 nranks=${2:-2} rounds=${3:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/board" "$work/trial"

fail() {
  echo "FAILED: $*"
  cat "$work"/log.* 2>/dev/null
  exit 1
}

# A process that only sleeps.
setsid sleep 100 </dev/null >/dev/null 2>&1 &
trial=$!
sleep 0.2
if ! criu dump -t "$trial" -D "$work/trial" -v1 -o dump.log >"$work/trial/output" 2>&1; then
  kill "$trial" 2>/dev/null
  echo "skipped: CRIU cannot dump a process here:"
  cat "$work/trial/output" "$work/trial/dump.log" 2>/dev/null
  criu check 2>&1
  exit 77
fi

await() { # file
  for _ in $(seq 600); do
    [ ! -e "$work/board/$1" ] || return 0
    sleep 0.1
  done
  fail "no $1"
}

pids=()
for ((rank = 0; rank < nranks; ++rank)); do
  setsid "$program" --directory "$work/board" --rank "$rank" --ranks "$nranks" --rounds "$rounds" \
    </dev/null >"$work/log.$rank" 2>&1 &
  pids[rank]=$!
done
for ((round = 1; round <= rounds; ++round)); do
  for ((rank = 0; rank < nranks; ++rank)); do await "suspended$round.$rank"; done
  mkdir "$work/refused$round"
  ! criu dump -t "${pids[0]}" -D "$work/refused$round" -v1 -o dump.log >/dev/null 2>&1 ||
    fail "CRIU has dumped a rank that is only suspended"
  : >"$work/board/part$round"
  for ((rank = 0; rank < nranks; ++rank)); do await "parted$round.$rank"; done
  for ((rank = 0; rank < nranks; ++rank)); do
    mkdir "$work/image$round.$rank"
    criu dump -t "${pids[rank]}" -D "$work/image$round.$rank" -v2 -o dump.log >/dev/null 2>&1 ||
      fail "rank $rank cannot be dumped: $(tail -n 20 "$work/image$round.$rank/dump.log")"
    wait "${pids[rank]}" 2>/dev/null # it has been killed
  done
  for ((rank = nranks - 1; rank >= 0; --rank)); do
    criu restore -d -D "$work/image$round.$rank" -v2 -o restore.log >/dev/null 2>&1 ||
      fail "rank $rank cannot be restored: $(tail -n 20 "$work/image$round.$rank/restore.log")"
  done
  : >"$work/board/wake$round"
done
for _ in $(seq 600); do
  [ "$(grep -c '^rank [0-9]*: right$' "$work"/log.* | awk -F: '{ n += $2 } END { print n }')" != "$nranks" ] || {
    echo "ok: $nranks ranks, checkpointed and restored $rounds times, $(du -sk "$work/image1.0" | cut -f1) KiB each"
    exit 0
  }
  sleep 0.1
done
fail "not all ranks have come to their end"
