#!/bin/bash
# Runs moe_top --hosts: two jobs under moerun play the ranks of two hosts, and a stand-in for ssh runs the remote command
# on this machine, with what each host has. Hosts that do not answer, for whatever reason, are named and hide no other.
# Usage: top_hosts_test.sh MOERUN SLOW_RANK MOE_TOP MOE_TRACE
set -u
moerun=$(realpath "$1") slow_rank=$(realpath "$2") moe_top=$(realpath "$3") moe_trace=$(realpath "$4")
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

check() { # what, expected, got
  [ "$2" = "$3" ] || fail "$1
  expected: $2
  got:      $3"
}

# ---- Hosts. nodea and nodeb are good. Each has a folder of its own; a rank chooses it by its number.
cat >"$work/ssh" <<'END'
#!/bin/sh
here=$(dirname "$0")
printf '%s|' "$@" >>"$here/ssh-arguments"
echo >>"$here/ssh-arguments"
host=$1
case $host in
  refused) echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255 ;;
  slow) exec sleep 30 ;;
  deaf) sleep 30 & exit 255 ;;
  killed) kill -KILL $$ ;;
  old) echo 'moe_top: unknown option --answers' >&2; echo 'moe_top --help lists the options' >&2; exit 2 ;;
  newer) echo '{"format":"moecomm answers","version":9,"answers":[]}'; exit 0 ;;
  strange) echo 'hello'; exit 0 ;;
  liar) "$here/nodeb/moe_top" --answers "$here/nodeb" | sed 's/\\"nranks\\":4/\\"nranks\\":5/g'; exit 0 ;;
  climber) "$here/nodeb/moe_top" --answers "$here/nodeb" | sed 's/\\"job\\":\\"/&..\/climbed/g'; exit 0 ;;
  otherdump)
    echo '{"format":"moecomm answers","version":1,"answers":[{"socket":"s","text":"{\"format\":\"moecomm recorder\",\"version\":2}","problem":""}]}'
    exit 0 ;;
esac
[ "$host" = nodeb ] && echo 'Welcome to nodeb' # a shell that talks
shift
setsid env -i PATH="$here/$host:/usr/bin:/bin" MOECOMM_WATCH_FOLDER="$here/$host" /bin/sh -c "$1"
END
cat >"$work/rank" <<'END'
#!/bin/sh
host=nodea
[ "$MOECOMM_RANK" -lt 2 ] || host=nodeb
MOECOMM_WATCH_FOLDER=$1/$host
export MOECOMM_WATCH_FOLDER
shift
exec "$@"
END
chmod +x "$work/ssh" "$work/rank"
mkdir -m 700 "$work/nodea" "$work/nodeb" "$work/empty" "$work/bare" "$work/dumps"
for host in nodea nodeb empty; do ln -s "$moe_top" "$work/$host/moe_top"; done
unset MOECOMM_WATCH_FOLDER
export MOECOMM_LOG_LEVEL=none
top() { # arguments of moe_top; leaves $work/out, $work/err and $status
  timeout 60 "$moe_top" --ssh "$work/ssh" "$@" >"$work/out" 2>"$work/err"
  status=$?
}

"$moerun" -n 4 "$work/rank" "$work" "$slow_rank" --slow 2 --percent 50 --work-us 20000 --end "$work/end" 2>/dev/null &
job=$!
for _ in $(seq 300); do
  top --hosts nodea,nodeb --metrics
  [ "$(awk '/^moecomm_steps_total/ && $2 >= 200 { n++ } END { print n + 0 }' "$work/out")" = 4 ] && break
  sleep 0.1
done

# ---- All ranks in one table
for _ in $(seq 15); do
  top --once --hosts nodea:2,nodeb:2 --dump "$work/dumps"
  grep -q '^slowest: rank 2: the others waited' "$work/out" && break
  sleep 1
done
check 'all hosts answer' "0 " "$status $(cat "$work/err")"
check 'all ranks are in one table' 1 "$(grep -c '4 of 4 ranks watched' "$work/out")"
check 'they are in order' '0 1 2 3' "$(awk '$1 ~ /^[0-9]+$/ { print $1 }' "$work/out" | paste -sd ' ')"
grep -q '^slowest: rank 2: the others waited' "$work/out" || { cat "$work/out"; fail "waits of one host for another"; }
check 'dumps of all hosts come here' 4 "$(find "$work/dumps" -name '*.json' | wc -l)"
"$moe_trace" "$work/dumps" -o "$work/trace.json" >"$work/log" || fail "moe_trace: status $?"
check 'they make one trace' 1 "$(grep -c '^job .*: 4 of 4 ranks' "$work/log")"
top --once --json --hosts nodea,nodeb
check 'JSON has the ranks of all hosts' '4 0 True' "$(python3 -c '
import json, sys
report = json.load(open(sys.argv[1]))
ranks = report["jobs"][0]["ranks"]
print(len(ranks), len(report["problems"]), all(one["totals"]["dispatches"] > 0 for one in ranks))' "$work/out")"
top --once --totals --hosts nodea,nodeb
check 'totals of all ranks' 4 "$(awk '$1 ~ /^[0-9]+$/ && $3 > 50 && $4 > 50 && $5 > 50' "$work/out" | wc -l)"
check 'totals fit 79 columns' 0 "$(awk 'length > 79' "$work/out" | wc -l)"

# ---- How a host is asked
rm "$work/ssh-arguments"
top --once --hosts nodea,nodea
check 'a host that is named twice is asked once' \
  "nodea|exec /bin/sh -c 'exec '\\''moe_top'\\'' --answers'|" "$(cat "$work/ssh-arguments")"
check 'a part of the ranks is a good answer' "0 1" "$status $(grep -c '2 of 4 ranks watched' "$work/out")"
rm "$work/ssh-arguments"
top --once --hosts bare --remote-program "$moe_top" "$work/nodeb"
check 'a folder and a program may be named' "0 bare|exec /bin/sh -c 'exec '\\''$moe_top'\\'' --answers '\\''$work/nodeb'\\'''|" \
  "$status $(cat "$work/ssh-arguments")"
top --once --hosts localhost,nodeb "$work/nodea"
check 'this host is asked without ssh' 1 "$(grep -c '2 of 4 ranks watched' "$work/out")"
top --once --hosts "localhost,refused" "$work/nodea"
check 'this host does not hide another' '1 1 1' \
  "$status $(grep -c '2 of 4 ranks watched' "$work/out") $(grep -c 'refused: ' "$work/err")"
top --answers "$work/nodea"
check 'answers are one line' "0 1" "$status $(wc -l <"$work/out")"

# ---- Hosts that give no answer
expect() { # host, its sentence, and how long hosts may take: nodea needs a second on a busy machine
  top --once --hosts "nodea,$1" --host-timeout "${3:-20}"
  check "$1" "1 moe_top: $1: $2" "$status $(sed 's/ ([^)]*not found)$//' "$work/err")" # each shell has its own words
  check "$1 does not hide others" 1 "$(grep -c '2 of 4 ranks watched' "$work/out")"
}
expect refused "$work/ssh ended with status 255: ssh: connect to host refused port 22: Connection refused"
expect killed "signal 9 ended $work/ssh"
expect bare "there is no moe_top there: name it by --remote-program"
expect old "its moe_top is of another version: moe_top: unknown option --answers"
expect newer "its moe_top writes version 9 of its answers, but only version 1 is known"
expect strange "its output is not that of moe_top"
begin=$(date +%s)
expect slow "no answer within 6 s (--host-timeout)" 6
[ $(($(date +%s) - begin)) -lt 15 ] || fail "a slow host is waited for"
begin=$(date +%s)
expect deaf "$work/ssh ended with status 255" 6
[ $(($(date +%s) - begin)) -lt 15 ] || fail "pipes that a process keeps open are waited for"
top --once --hosts nodea,otherdump
check 'a dump of another version' '1 moe_top: otherdump:s: its version is 2, but only version 1 is known' \
  "$status $(cat "$work/err")"
top --once --hosts nodea,liar
check 'a job of other sizes' '1 2 1' "$status $(grep -c 'has [45] ranks there and [45] elsewhere' "$work/err") $(
  grep -c '2 of [45] ranks watched' "$work/out")"
top --once --hosts nodea,climber --dump "$work/dumps"
check 'a job that is no name of a file' '1 2' "$status $(grep -c "climber:.*: its job '../climbed.*' is not hexadecimal" "$work/err")"
check 'no file is written there' 0 "$(find "$work" -name 'climbed*' | wc -l)"
cp "$work/nodea"/*rank1.sock.key "$work/key"
echo 00000000000000000000000000000000 >"$(echo "$work/nodea"/*rank1.sock.key)"
top --once --hosts nodea,nodeb
check 'a rank without an answer is named with its host' "1 1 1" \
  "$status $(grep -c '3 of 4 ranks watched' "$work/out") $(grep -c '^moe_top: nodea:.*rank1.sock: ' "$work/err")"
cat "$work/key" >"$(echo "$work/nodea"/*rank1.sock.key)"
top --once --hosts empty
check 'a host without a job' '1 moe_top: no job offers a socket on empty' "$status $(cat "$work/err")"
"$moe_top" --once --hosts nodea --ssh "$work/no-ssh" >/dev/null 2>"$work/err"
check 'an ssh that is not there' "1 moe_top: nodea: cannot run '$work/no-ssh': No such file or directory" \
  "$? $(head -1 "$work/err")"

# ---- Options
top --once --hosts -oProxyCommand=x
check 'a host that looks like an option' "2 moe_top: --hosts: invalid host name '-oProxyCommand=x'" \
  "$status $(head -1 "$work/err")"
top --once --hosts nodea --ssh ' '
check 'an empty ssh' "2 moe_top: --ssh: it is empty" "$status $(head -1 "$work/err")"
top --answers --hosts nodea
check 'answers are those of one host' 2 "$status"

touch "$work/end"
wait "$job"
job=
exit $failed
