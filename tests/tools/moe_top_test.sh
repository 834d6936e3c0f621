#!/bin/bash
# Runs moe_top on a job of four ranks, one of which is slowed by 20 %. The table and the metrics must name it. Runs
# moe_trace on the dumps of moe_top, and on those of the survivors of a killed rank. Strangers must learn nothing.
# Usage: moe_top_test.sh MOERUN SLOW_RANK MOE_TOP MOE_TRACE
set -u
moerun=$1 slow_rank=$2 moe_top=$3 moe_trace=$4
work=$(mktemp -d)
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}
job=
finish() {
  [ -z "$job" ] || kill "$job" 2>/dev/null
  wait
  rm -rf "$work"
}
trap finish EXIT
sockets() { find "$work/watch" -name '*.sock' | wc -l; }
# Waits until the given number of ranks have recorded the given number of steps.
await() { # RANKS STEPS
  for _ in $(seq 300); do
    [ "$("$moe_top" --metrics "$work/watch" 2>/dev/null | awk -v least="$2" \
      '/^moecomm_steps_total/ && $2 >= least { n++ } END { print n + 0 }')" = "$1" ] && return
    sleep 0.1
  done
  fail "$1 ranks have not made $2 steps"
}

# ---- A job in which rank 2 is slow
mkdir -m 700 "$work/watch" "$work/dumps"
export MOECOMM_LOG_LEVEL=none
MOECOMM_WATCH_FOLDER=$work/watch "$moerun" -n 4 "$slow_rank" --slow 2 --percent 20 --work-us 40000 --end "$work/end" &
job=$!
await 4 200
[ "$(sockets)" = 4 ] || fail "$(sockets) sockets of 4"
[ "$(find "$work/watch" -type s -perm 600 | wc -l)" = 4 ] || fail "a socket has another mode than 0600"
[ "$(find "$work/watch" -type f -perm 600 -name '*.key' | wc -l)" = 4 ] || fail "a key has another mode than 0600"
# A loaded machine slows others too, but not for long.
for _ in $(seq 15); do
  "$moe_top" --once --dump "$work/dumps" "$work/watch" >"$work/table" || fail "moe_top --once: status $?"
  grep -q '^slowest: rank 2: the others waited' "$work/table" && break
  sleep 1
done
grep -q '^slowest: rank 2: the others waited' "$work/table" || { cat "$work/table"; fail "rank 2 is not named"; }
grep -q '4 of 4 ranks' "$work/table" || fail "not all ranks are shown"
"$moe_top" --metrics "$work/watch" >"$work/metrics" || fail "moe_top --metrics: status $?"
grep -q '^moecomm_slowest{.*rank="2".*} 1$' "$work/metrics" || { cat "$work/metrics"; fail "no metric names rank 2"; }
[ "$(grep -c '^moecomm_slowest{.*} 1$' "$work/metrics")" = 1 ] || fail "several ranks are the slowest"
grep -q '^moecomm_recent_wait_ratio{.*rank="0".*awaited="2"} 0\.[0-9]' "$work/metrics" || fail "rank 0's wait for 2 is missing"

"$moe_top" --once --json "$work/watch" >"$work/json" || fail "moe_top --once --json: status $?"
python3 - "$work/json" <<'EOF' || fail "the JSON is wrong"
import json, sys
report = json.load(open(sys.argv[1]))
job, = report["jobs"]
assert job["nranks"] == 4 and [one["rank"] for one in job["ranks"]] == [0, 1, 2, 3] and not report["problems"], report
assert all(one["steps_total"] >= 200 and one["recent_steps_per_second"] > 0 for one in job["ranks"]), job
assert set(job["slowest"]) == {"rank", "sentence"}, job
for one in job["ranks"]:
    totals = one["totals"]
    operations = totals["routes"] + totals["dispatches"] + totals["combines"]
    assert -1 <= operations - one["steps_total"] <= 50, one  # a pending step, or steps made while it is asked
    assert 0 < totals["wait_seconds"] <= totals["step_seconds"] <= totals["seconds"], one
    assert totals["call_bytes"] > totals["call_rows"] > 0 and not totals["replayed"], one
EOF

# ---- A client without the key, and one that asks and does not read
one=$(find "$work/watch" -name '*rank1.sock')
cp "$one.key" "$work/key"
printf '00000000000000000000000000000000\n' >"$one.key"
"$moe_top" --once "$work/watch" >"$work/table" 2>"$work/error" && fail "a wrong key is taken"
grep -q 'rank1.sock' "$work/error" || fail "moe_top does not say whose key is wrong"
grep -q '3 of 4 ranks' "$work/table" || fail "a rank with a wrong key hides the others"
cat "$work/key" >"$one.key"
python3 - "$one" <<'EOF' &
import socket, sys, time
held = []
for i in range(40):  # more than the rank answers at once
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(1)
    try:
        s.connect(sys.argv[1])
        s.sendall(b"\xff" * (i * 7))
    except OSError:
        pass
    held.append(s)
time.sleep(20)
EOF
strangers=$!
sleep 0.3
before=$("$moe_top" --metrics "$work/watch" 2>/dev/null | awk '/^moecomm_steps_total.*rank="0"/ { print $2 }')
sleep 1
answered=no
for _ in $(seq 50); do
  "$moe_top" --once "$work/watch" >/dev/null 2>&1 && answered=yes && break
  sleep 0.1
done
[ "$answered" = yes ] || fail "strangers keep moe_top out"
after=$("$moe_top" --metrics "$work/watch" 2>/dev/null | awk '/^moecomm_steps_total.*rank="0"/ { print $2 }')
[ "${after:-0}" -gt "${before:-0}" ] || fail "strangers stop the job: $before, then $after steps"
kill "$strangers" 2>/dev/null
wait "$strangers" 2>/dev/null
touch "$work/end"
wait "$job"
job=

# ---- A trace and a picture
"$moe_trace" "$work/dumps" -o "$work/trace.json" --heat "$work/heat.svg" >"$work/log" || { cat "$work/log"; fail "moe_trace: status $?"; }
grep -q '^slowest: rank 2' "$work/log" || fail "moe_trace does not name rank 2"
python3 - "$work/trace.json" "$work/heat.svg" <<'EOF' || fail "the trace or the picture is wrong"
import json, sys, xml.etree.ElementTree as tree
events = json.load(open(sys.argv[1]))["traceEvents"]
assert {e["pid"] for e in events} == {1}, "Perfetto opens a process that is the only one"
tracks = [e["args"]["name"].split(" (")[0] for e in sorted(events, key=lambda e: e.get("tid", 0))
          if e["name"] == "thread_name"]
assert tracks == [f"rank {rank} {what}" for rank in range(4) for what in ("steps", "waits")], tracks
steps = [e for e in events if e["ph"] == "X" and e["name"] != "first wait"]
assert {e["args"]["rank"] for e in steps} == {0, 1, 2, 3}, "ranks"
# Arrows leave the late rank, mostly rank 2, and none arrives before it has left.
leave = {e["id"]: e for e in events if e["ph"] == "s"}
arrive = {e["id"]: e for e in events if e["ph"] == "f"}
assert leave.keys() == arrive.keys() and len(leave) > 20, (len(leave), len(arrive))
assert all(arrive[i]["ts"] >= leave[i]["ts"] and arrive[i]["tid"] != leave[i]["tid"] for i in leave)
assert sum(e["tid"] == 6 for e in leave.values()) > len(leave) / 3, "rank 2"
assert {e["name"] for e in steps} == {"moeRoute", "moeDispatch", "moeCombine"}, "calls"
assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in steps), "times"
# The clocks agree: no rank ends a route before every rank has begun it.
begins, ends = {}, {}
for e in steps:
    if e["name"] == "moeRoute" and "under_way" not in e["args"]:
        n = e["args"]["number"]
        begins[n] = max(begins.get(n, 0), e["ts"])
        ends[n] = min(ends.get(n, 1e18), e["ts"] + e["dur"])
whole = [n for n in begins if sum(e["args"]["number"] == n for e in steps) == 4]
assert len(whole) > 20, len(whole)
assert all(ends[n] >= begins[n] for n in whole), "clocks"
cells = [e for e in tree.parse(sys.argv[2]).iter() if e.tag.endswith("}title")]
assert len(cells) == 16, len(cells)
EOF
"$moe_trace" "$work/nothing" >/dev/null 2>&1 && fail "moe_trace takes a folder that does not exist"
echo '{}' >"$work/bad"
"$moe_trace" "$work/bad" >/dev/null 2>"$work/error" && fail "moe_trace takes a file that is no dump"
grep -q 'bad' "$work/error" || fail "moe_trace does not say which file is bad"

# ---- A rank is killed: the dumps of the others name it
rm -rf "$work/dumps" "$work/watch"
mkdir -m 700 "$work/dumps" "$work/watch"
MOECOMM_DUMP_FOLDER=$work/dumps MOECOMM_WATCH_FOLDER=$work/watch "$moerun" -n 4 --grace 10 "$slow_rank" --work-us 2000 &
job=$!
await 4 30
victim=$("$moe_top" --once "$work/watch" 2>/dev/null | awk '$1 == "1" { print $3 }')
kill -9 "$victim" || fail "there is no process of rank 1"
wait "$job"
job=
"$moe_trace" "$work/dumps" -o "$work/trace.json" >"$work/log" || fail "moe_trace of a failure: status $?"
grep -q '^job .*: 3 of 4 ranks' "$work/log" || { cat "$work/log"; fail "not every survivor has dumped"; }
for rank in 0 2 3; do
  grep -q "^rank $rank failed: .*rank 1" "$work/log" || { cat "$work/log"; fail "rank $rank does not name rank 1"; }
done
"$moe_top" --once "$work/watch" >/dev/null 2>&1 && fail "moe_top shows a job that has ended"

# ---- A job under moerun offers its records without being told, and moe_top looks there
if [ -z "${MOECOMM_WATCH_FOLDER+set}" ]; then
  folder=/tmp/moecomm-$(id -u)
  [ -d "$folder" ] || mkdir -m 700 "$folder"
  left=$folder/moecomm-test$$-rank0.sock
  python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$left"
  touch "$left.key"
  touch -d '5 minutes ago' "$left"
  "$moerun" -n 2 --no-tag "$slow_rank" --work-us 2000 --end "$work/end2" &
  job=$!
  seen=no
  for _ in $(seq 100); do
    "$moe_top" --json >"$work/json" 2>/dev/null
    python3 - "$work/json" "$job" 2>/dev/null <<'EOF' && seen=yes && break
import json, sys
ranks = [one["process"] for job in json.load(open(sys.argv[1]))["jobs"] for one in job["ranks"]]
parents = [int(open(f"/proc/{one}/stat").read().rsplit(")", 1)[1].split()[1]) for one in ranks]
sys.exit(parents.count(int(sys.argv[2])) != 2)
EOF
    sleep 0.1
  done
  [ $seen = yes ] || fail "moe_top does not see a job under moerun by itself"
  if [ -e "$left" ] || [ -e "$left.key" ]; then fail "moerun leaves a dead job's socket"; fi
  touch "$work/end2"
  wait "$job"
  job=
  [ "$("$moerun" -n 1 --no-tag --no-watch sh -c 'echo "<$MOECOMM_WATCH_FOLDER>"')" = '<>' ] || fail "--no-watch"
fi
[ "$(MOECOMM_WATCH_FOLDER=x "$moerun" -n 1 --no-tag sh -c 'echo "<$MOECOMM_WATCH_FOLDER>"')" = '<x>' ] ||
  fail "moerun replaces a folder that the user has named"

# ---- Folders that others may write
chmod 777 "$work/watch"
MOECOMM_WATCH_FOLDER=$work/watch "$moerun" -n 1 "$slow_rank" --steps 1 && fail "a folder that others may write is taken"
exit $failed
