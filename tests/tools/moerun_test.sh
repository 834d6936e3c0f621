#!/bin/sh
# Runs moerun for real: exit statuses, prefixes, ends of ranks, hosts. A stand-in for ssh runs the remote command on
# this machine, so the test needs no daemon. Usage: moerun_test.sh PATH_OF_MOERUN
set -u
moerun=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

check() { # what, expected, got
  if [ "$2" != "$3" ]; then
    printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}

# True if the command succeeds within 5 s. Otherwise the check fails.
eventually() { # what, command...
  what=$1
  shift
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    if "$@"; then return; fi
    sleep 0.2
  done
  check "$what" true false
}
gone() { ! kill -0 "$1" 2>/dev/null; }
two_lines() { [ "$(wc -l 2>/dev/null <"$1")" = 2 ]; }
present() { [ -s "$1" ]; }

run() { # arguments of moerun; leaves $work/out, $work/err and $status
  "$moerun" "$@" >"$work/out" 2>"$work/err"
  status=$?
}

# ---- Environment and output ----
run -n 3 sh -c 'echo $MOECOMM_RANK/$MOECOMM_NRANKS $MOECOMM_LOCAL_RANK/$MOECOMM_LOCAL_NRANKS'
check 'a job that succeeds ends with status 0' 0 $status
check 'each rank knows its place' '[0] 0/3 0/3
[1] 1/3 1/3
[2] 2/3 2/3' "$(sort "$work/out")"

run -n 2 sh -c 'echo one; echo two >&2'
check 'standard output and error stay apart' '[0] one
[1] one|[0] two
[1] two' "$(sort "$work/out")|$(sort "$work/err")"

run -n 1 sh -c 'printf "a\n\nno end"'
check 'empty lines and a last line without an end are kept' '[0] a
[0] 
[0] no end' "$(cat "$work/out")"

run -n 2 --no-tag echo plain
check '--no-tag leaves the lines alone' 'plain
plain' "$(cat "$work/out")"

run -n 3 --no-tag sh -c 'echo $MOECOMM_ROOT $MOECOMM_SECRET'
check 'all ranks share root and secret' 1 "$(sort -u "$work/out" | wc -l)"
check 'root and secret have their forms' 3 "$(grep -cE '^127\.0\.0\.1:[0-9]+ [0-9a-f]{32}$' "$work/out")"
first=$(head -1 "$work/out")
run -n 1 --no-tag sh -c 'echo $MOECOMM_ROOT $MOECOMM_SECRET'
[ "$first" != "$(cat "$work/out")" ]
check 'two jobs do not share a secret' 0 $?

run -n 4 sh -c 'i=0; while [ $i -lt 500 ]; do echo abcdefghijklmnopqrstuvwxyz; i=$((i + 1)); done'
check 'lines of several ranks never mix' 2000 "$(grep -cE '^\[[0-3]\] abcdefghijklmnopqrstuvwxyz$' "$work/out")"

run -n 1 sh -c 'head -c 3000000 /dev/zero | tr "\0" x'
check 'a very long line arrives whole, in pieces' 3000000 "$(tr -cd x <"$work/out" | wc -c)"

echo text | "$moerun" -n 2 cat >"$work/out"
check 'ranks read nothing' '' "$(cat "$work/out")"

run -n 2 -- printf '%s|' -n 'a b'
check 'arguments reach the command unchanged' '[0] -n|a b|
[1] -n|a b|' "$(sort "$work/out")"

CUDA_VISIBLE_DEVICES=5 run -n 1 --no-tag sh -c 'echo $CUDA_VISIBLE_DEVICES'
check 'CUDA_VISIBLE_DEVICES is left alone' 5 "$(cat "$work/out")"

# ---- Processors ----
allowed() { "$@" sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status; }
one() { allowed | sed 's/[-,].*//'; } # the first processor that this script may use
check 'without --bind a rank may use what moerun may' "$(allowed)" "$(allowed "$moerun" -n 1 --no-tag)"
check 'a share for one rank is everything' "$(allowed)" "$(allowed "$moerun" -n 1 --no-tag --bind share)"
check 'only what moerun may use is shared' "$(one)" "$(allowed taskset -c "$(one)" "$moerun" -n 1 --no-tag --bind share)"
for bind in core share; do
  taskset -c "$(one)" "$moerun" -n 2 --bind $bind true 2>"$work/err"
  check "--bind $bind refuses more ranks than there is room for" "1 moerun: --bind $bind: 2 ranks on this host, but moerun may use only 1 $(
    [ $bind = core ] && echo cores || echo processors)" "$? $(cat "$work/err")"
done
if [ "$(nproc)" -ge 2 ]; then
  run -n 2 --no-tag --bind share sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
  check 'two ranks have different processors' 2 "$(tr ',' '\n' <"$work/out" | sort -u | wc -l)"
fi
for option in --help --version; do
  run $option
  check "moerun $option ends with status 0" 0 $status
done
"$moerun" --help >"$work/out"
check 'the help has its sections' 'Exit status:
Environment:
Examples:' "$(grep -E '^(Exit status|Environment|Examples):$' "$work/out")"
check 'the help fits a terminal' 0 "$(awk 'length > 100' "$work/out" | wc -l)"
run -n 2 --tmeout 5 true
check 'a misspelt option is named' 'moerun: unknown option --tmeout; did you mean --timeout?' "$(head -1 "$work/err")"
run -n 2 --gr 5 true
check 'an abbreviated option is named' 'moerun: unknown option --gr; did you mean --grace?' "$(head -1 "$work/err")"
run -n 0 true
check 'a rank count that cannot be is named' 'moerun: --ranks: 0 is not a whole number from 1 to 65536' "$(head -1 "$work/err")"
run -n 1 --timeout soon true
check 'a timeout that is no number is named' 'moerun: --timeout: soon is not a number of seconds from 0 to 1000000000' \
  "$(head -1 "$work/err")"

run -n 1 --bind everything true
check '--bind knows its words' '2 1' "$status $(grep -c -- '--bind: everything is not one of core, none, share$' "$work/err")"

# ---- Failures ----
run -n 3 --grace 0.2 sh -c 'if [ $MOECOMM_RANK = 1 ]; then exit 7; fi; sleep 30'
check 'the first failing rank gives the status' 7 $status
check 'the failing rank is named' 1 "$(grep -c 'rank 1 .* ended with status 7' "$work/err")"

run -n 2 --grace 5 sh -c 'if [ $MOECOMM_RANK = 1 ]; then exit 3; fi; sleep 0.3; echo "peer 1 died"; exit 4'
check 'a survivor may report within the grace' '[0] peer 1 died' "$(cat "$work/out")"
check 'a survivor does not change the status' 3 $status

run -n 2 --grace 0.2 sh -c 'if [ $MOECOMM_RANK = 0 ]; then kill -SEGV $$; fi; sleep 30'
check 'a signal gives 128 and its number' 139 $status

run -n 2 --grace 0.2 sh -c 'if [ $MOECOMM_RANK = 0 ]; then exit 1; fi; trap "echo told; exit 0" TERM; sleep 30 & wait'
check 'survivors are told by SIGTERM' '[1] told' "$(cat "$work/out")"

run -n 2 --timeout 0.3 sleep 30
check 'the timeout ends the job' 124 $status

run -n 1 "$work/missing"
check 'a command that is not there' 127 $status
run -n 1 /dev/null
check 'a command that cannot be executed' 126 $status
run -n 0 true
check 'wrong options' 2 $status
run --wrong true
check 'no rank count' 2 $status
run -n 1 --wrong true
check 'an unknown option is no command' 2 $status

run -n 1 sh -c "sleep 30 & echo \$! >$work/child; exit 0"
eventually 'what a rank leaves behind is ended' gone "$(cat "$work/child")"

# ---- Signals to moerun ----
"$moerun" -n 2 sh -c 'trap "echo got INT; exit 0" INT; echo >'"$work"'/ready$MOECOMM_RANK; sleep 30 & wait' >"$work/out" &
pid=$!
eventually 'both ranks start' sh -c "[ -e $work/ready0 ] && [ -e $work/ready1 ]"
kill -TERM $pid # a background job of sh ignores SIGINT, so the next job tests the forwarding
wait $pid
check 'SIGTERM ends the job' 143 $?

"$moerun" -n 1 sh -c "echo \$\$ >$work/orphan; exec sleep 30" &
pid=$!
eventually 'the rank starts' present "$work/orphan"
kill -KILL $pid
wait $pid 2>/dev/null
eventually 'ranks die with moerun' gone "$(cat "$work/orphan")"

for signal in KILL QUIT USR1 ABRT; do
  rm -f "$work/behind"
  env --default-signal=QUIT "$moerun" -n 2 sh -c "sleep 300 & echo \$! >>$work/behind; wait" &
  pid=$!
  eventually 'both wrappers start' two_lines "$work/behind"
  kill -$signal $pid
  wait $pid 2>/dev/null
  for child in $(cat "$work/behind"); do
    eventually "what stands behind a wrapper dies with moerun that $signal ends" gone "$child"
  done
done

# A program that waits for the end of moerun's output, or for its children, must not wait for the watcher.
end=$( ("$moerun" -n 1 sh -c 'setsid sleep 5 >/dev/null 2>&1 </dev/null & exit 0'; echo ended) | cat)
check 'nothing holds the output open' ended "$end"
"$moerun" -n 1 sh -c "echo >$work/up; exec sleep 300" &
pid=$!
eventually 'the rank starts' present "$work/up"
watcher=$(tr ' ' '\n' <"/proc/$pid/task/$pid/children" | while read -r child; do
  if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = moerun-watcher ]; then echo "$child"; fi
done)
check 'there is one watcher' 1 "$(echo "$watcher" | grep -c .)"
kill -TERM $pid
wait $pid
eventually 'the watcher ends with moerun' gone "$watcher"

# ---- Hosts ----
cat >"$work/ssh" <<'END'
#!/bin/sh
echo "$*" >>"$(dirname "$0")/ssh-arguments"
shift
setsid env -i PATH="$PATH" /bin/sh -c "$1" # a session of its own, as on another host
END
chmod +x "$work/ssh"
run -n 5 --hosts nodea:3,nodeb:2 --ssh "$work/ssh" sh -c 'echo $MOECOMM_RANK $MOECOMM_LOCAL_RANK/$MOECOMM_LOCAL_NRANKS ${MOECOMM_ROOT%:*}'
check 'slots fill in blocks' '[0] 0 0/3 nodea
[1] 1 1/3 nodea
[2] 2 2/3 nodea
[3] 3 0/2 nodea
[4] 4 1/2 nodea' "$(sort "$work/out")"
check 'a job over hosts succeeds' 0 $status

rm -f "$work/ssh-arguments"
run -n 2 --hosts nodea,nodeb --ssh "$work/ssh" --no-tag sh -c 'echo $MOECOMM_SECRET'
secret=$(sort -u "$work/out")
check 'the secret reaches other hosts' 33 "$(printf '%s\n' "$secret" | wc -c)"
check 'the secret is in no argument' 0 "$(grep -c "$secret" "$work/ssh-arguments")"

FOO="it's" MOECOMM_LOG_LEVEL=info run -n 1 --hosts nodea --ssh "$work/ssh" -x FOO --no-tag sh -c 'echo "$FOO $MOECOMM_LOG_LEVEL"'
check 'settings and exported variables reach other hosts' "it's info" "$(cat "$work/out")"

rm -f "$work/ssh-arguments"
value=$(printf "two\nlines, it's \$HOME \134 'quoted' \n\nend")
FOO=$value MOECOMM_LOG_FILE=/tmp/a-secret-place run -n 1 --hosts nodea --ssh "$work/ssh" -x FOO --no-tag \
  sh -c 'printf "%s in %s" "$FOO" "$MOECOMM_LOG_FILE"'
check 'any value reaches other hosts' "$value in /tmp/a-secret-place" "$(cat "$work/out")"
check 'values are in no argument' 0 "$(grep -cE 'two|quoted|a-secret-place' "$work/ssh-arguments")"

FOO=$(head -c 100000 /dev/zero | tr '\0' x) run -n 2 --hosts nodea --ssh "$work/ssh" -x FOO --no-tag \
  sh -c 'printf "%s" "$FOO" | wc -c'
check 'a long value reaches other hosts' '100000
100000' "$(cat "$work/out")"

run -n 1 --hosts nodea --ssh "$work/ssh" -x "FOO;touch $work/hacked;A" true
check 'a name that a shell would run is refused' \
  "moerun: --export: invalid variable name 'FOO;touch $work/hacked;A': use letters, digits and _, and begin with no digit" \
  "$(cat "$work/err")"
check 'no rank starts then' 1 $status
env "MOECOMM_A;touch $work/hacked;B=1" "$moerun" -n 1 --hosts nodea --ssh "$work/ssh" true 2>"$work/err"
check 'a setting whose name a shell would run is left out' \
  "0 moerun: 'MOECOMM_A;touch $work/hacked;B' is not passed to other hosts: a shell does not accept it as the name of a variable" \
  "$? $(cat "$work/err")"
check 'no name was run' false "$([ -e "$work/hacked" ] && echo true || echo false)"

folder=/tmp/moecomm-$(id -u)
unset MOECOMM_WATCH_FOLDER
run -n 1 --hosts nodea --ssh "$work/ssh" --no-tag sh -c 'echo $MOECOMM_WATCH_FOLDER; stat -c %a $MOECOMM_WATCH_FOLDER'
check 'ranks on other hosts offer their records too' "$folder
700" "$(cat "$work/out")"
check 'nothing else is left in the folder' 0 "$(find "$folder" -name 'probe-*' | wc -l)"
run -n 1 --hosts nodea --ssh "$work/ssh" --no-tag --no-watch sh -c 'echo "<$MOECOMM_WATCH_FOLDER>"'
check '--no-watch is for all hosts' '<>' "$(cat "$work/out")"
MOECOMM_WATCH_FOLDER='' run -n 1 --hosts nodea --ssh "$work/ssh" --no-tag sh -c 'echo "<$MOECOMM_WATCH_FOLDER>"'
check 'a choice of the caller is for all hosts' '<>' "$(cat "$work/out")"

run -n 1 --hosts nodea --ssh "$work/ssh" sh -c "sleep 300 & echo \$! >$work/child; exit 0"
eventually 'what a rank leaves behind on another host is ended' gone "$(cat "$work/child")"

rm -f "$work/behind"
"$moerun" -n 2 --hosts nodea,nodeb --ssh "$work/ssh" sh -c "sleep 300 & echo \$! >>$work/behind; wait" &
pid=$!
eventually 'both wrappers start on other hosts' two_lines "$work/behind"
kill -KILL $pid
wait $pid 2>/dev/null
for child in $(cat "$work/behind"); do
  eventually 'what stands behind a wrapper on another host dies with moerun' gone "$child"
done

run -n 2 --hosts nodea,nodeb --ssh "$work/ssh" --grace 0.2 sh -c "echo \$\$ >$work/remote\$MOECOMM_RANK; if [ \$MOECOMM_RANK = 1 ]; then exit 9; fi; exec sleep 30"
check 'a rank on another host gives its status' 9 $status
eventually 'ranks on other hosts are ended' gone "$(cat "$work/remote0")"

run -n 2 --hosts localhost,nodea --ssh "$work/ssh" --bind core true
check '--bind refuses ranks on other hosts' \
  'moerun: --bind is for ranks of this machine, but rank 1 is to run on nodea; let the command bind itself there, with taskset for example' \
  "$(cat "$work/err")"

run -n 3 --hosts nodea:1,nodeb:1 --ssh "$work/ssh" true
check 'too few slots are refused' 1 $status
run -n 1 --hosts -oProxyCommand=x --ssh "$work/ssh" true
check 'a host that looks like an option is refused' 1 "$(grep -c 'invalid host name' "$work/err")"

if [ $failures -gt 0 ]; then
  echo "$failures checks failed"
  exit 1
fi
echo 'all checks passed'
