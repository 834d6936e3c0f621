#!/bin/sh
# The command line of moe_perf as a user meets it: help, versions, wrong options, token ranges, and reports, whose files
# are opened before anything runs. Usage: moe_perf_cli_test.sh PATH_OF_MOE_PERF PATH_OF_MOERUN [OTHER_TOOL]...
set -u
perf=$1
moerun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

# Expects one sentence that begins with the program's name, and status 2.
refuses() { # sentence, arguments...
  sentence=$1
  shift
  "$perf" "$@" >"$work/out" 2>"$work/err"
  [ $? = 2 ] || fail "moe_perf $*: the status is not 2"
  [ "$(head -n 1 "$work/err")" = "$sentence" ] || fail "moe_perf $*: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "moe_perf $*: something was printed"
}
fits() { # name, file, columns if not 100
  awk -v most="${3:-100}" 'length > most { print FILENAME ": " $0; bad = 1 } END { exit bad }' "$2" ||
    fail "$1 is wider than ${3:-100} columns"
}

# Help and versions.
"$perf" --help >"$work/help" || fail '--help'
fits --help "$work/help"
for group in 'What is run' Routing Ranks 'Measuring and verifying' 'Instead of cases' Report Examples; do
  grep -q "^$group:$" "$work/help" || fail "the help has no group $group"
done
grep -q '^  moerun -n 4 moe_perf --mode ll ' "$work/help" || fail 'the help has no example'
for tool in "$@"; do
  "$tool" --version >"$work/out" 2>&1 || fail "$tool --version"
  grep -Eq "^$(basename "$tool") [0-9]+\.[0-9]+\.[0-9]+(, commit [0-9a-f]+(-dirty)?)?$" "$work/out" ||
    fail "$tool --version: $(cat "$work/out")"
done

# Wrong options.
refuses 'moe_perf: unknown option --tokns; did you mean --tokens?' --tokns 5
refuses 'moe_perf: unknown option --hiden; did you mean --hidden?' --hiden=5 --mode ll
refuses 'moe_perf: unknown option --bandwidth' --bandwidth
refuses 'moe_perf: unexpected argument 4096' 4096
refuses 'moe_perf: --mode: htt is not one of auto, ht, ll; did you mean ht?' --mode htt
refuses 'moe_perf: --hidden: abc is not a whole number from 1 to 2147483647' --hidden abc
refuses 'moe_perf: --topk: 33 is not a whole number from 1 to 32' --topk 33
refuses 'moe_perf: --tokens: 1:8:y2: expected xFACTOR or +STEP behind the second colon' --tokens 1:8:y2
refuses 'moe_perf: --tokens: 1048577 cases, at most 1000 allowed' --tokens 0:1048576:+1
refuses 'moe_perf: --across: modes is not one of format, layout, mode, none, sms, wire; did you mean mode?' --across modes
refuses 'moe_perf: --csv has a line for each case, but --soak has no cases: use --json' --csv "$work/x" --soak 3

# Before the ranks meet, moe_perf refuses reports that cannot be written. Rank 0 of several ranks does so too.
refuses "moe_perf: --json: cannot write $work/none/x.json: No such file or directory" \
  --ranks-as-threads 2 --json "$work/none/x.json"
refuses "moe_perf: --csv: cannot write $work: Is a directory" --ranks-as-threads 2 --csv "$work"
"$moerun" --grace 0.2 --timeout 60 --no-tag -n 2 "$perf" --backend host --json "$work/none/x.json" >"$work/out" 2>"$work/err" &&
  fail 'a report that cannot be written, of processes'
grep -q "^moe_perf: --json: cannot write $work/none/x.json: No such file or directory$" "$work/err" ||
  fail "a report that cannot be written, of processes: $(cat "$work/err")"
[ ! -s "$work/out" ] || fail 'a report that cannot be written, of processes: cases ran'
if [ -w /dev/full ]; then
  "$perf" --ranks-as-threads 1 --backend host --tokens 1 --hidden 64 --iters 1 >/dev/full 2>"$work/err"
  [ $? = 1 ] || fail 'a table that is lost'
  grep -q 'cannot write to standard output: No space left on device$' "$work/err" || fail "a lost table: $(cat "$work/err")"
fi

# Token ranges, the table's width, and the contents of the reports.
small='--backend host --hidden 256 --topk 4 --experts 8 --iters 3 --warmup 1'
# shellcheck disable=SC2086 # words
"$perf" --ranks-as-threads 2 $small --tokens 0,1:8:x2,10:20:+10 --json "$work/r.json" --csv "$work/r.csv" \
  >"$work/out" 2>"$work/err" || fail "ranges: $(cat "$work/err")"
[ "$(awk '/correct$/ { printf "%s ", $1 }' "$work/out")" = '0 1 2 4 8 10 20 ' ] || fail "ranges: $(cat "$work/out")"
fits 'the table' "$work/out" 79
[ ! -s "$work/err" ] || fail "progress is shown where there is no terminal: $(cat "$work/err")"
awk '/correct$/' "$work/out" | grep -q -e ' -[0-9]' && fail "a negative time: $(cat "$work/out")"
python3 - "$work/r.json" "$work/r.csv" "$(dirname "$0")/../../docs/guide/measuring.md" <<'PYTHON' || fail 'the reports'
import csv, datetime, json, socket, sys
cases = json.load(open(sys.argv[1]))
rows = list(csv.DictReader(open(sys.argv[2])))
guide = open(sys.argv[3]).read()
unknown = [key for key in cases[0] if f"`{key}`" not in guide]
assert not unknown, f"docs/guide/measuring.md does not explain {unknown}"
assert [case["tokens"] for case in cases] == [0, 1, 2, 4, 8, 10, 20], cases
assert [int(row["tokens"]) for row in rows] == [case["tokens"] for case in cases], rows
for case, row in zip(cases, rows):
    assert case["version"].count(".") == 2 and case["host"] == socket.gethostname(), case
    assert {"commit", "cpu", "gpu", "driver"} <= set(case), case
    datetime.datetime.strptime(case["date"], "%Y-%m-%dT%H:%M:%SZ")
    assert float(row["pair_us.median"]) == case["pair_us"]["median"] and row["host"] == case["host"], row
    assert all(case[f"{time}_us"]["min"] > 0 for time in ("dispatch", "combine", "pair", "step")), case
PYTHON
# Ranks that share a processor, and each rank's medians.
# shellcheck disable=SC2086 # words
taskset -c "$(taskset -pc $$ | sed 's/.*: *//; s/[,-].*//')" \
  "$perf" --ranks-as-threads 3 $small --tokens 4 --per-rank --json "$work/ranks.json" >"$work/out" || fail --per-rank
grep -q '^NOTE: 3 ranks of a host share 1 processor: ' "$work/out" || fail "a shared processor: $(cat "$work/out")"
[ "$(grep -c '^ *rank [012]: dispatch ' "$work/out")" = 3 ] || fail "--per-rank: $(cat "$work/out")"
fits 'the table with ranks' "$work/out" 79
python3 - "$work/ranks.json" "$(dirname "$0")/../../docs/guide/measuring.md" <<'PYTHON' || fail '--per-rank --json'
import json, sys
case, = json.load(open(sys.argv[1]))
assert "`rank_medians_us`" in open(sys.argv[2]).read()
for operation in ("dispatch", "combine", "pair", "step"):
    medians = case["rank_medians_us"][operation]
    assert len(medians) == 3 and 0 < max(medians) <= case[f"{operation}_us"]["max"], (operation, case)
PYTHON
# On a terminal the progress is shown in one line.
script -qec "$perf --ranks-as-threads 2 $small --tokens 4" "$work/terminal" >/dev/null || fail 'on a terminal'
grep -q 'case 1/1: 4 tokens: ' "$work/terminal" || fail 'no progress on a terminal'
# Standard output takes a report alone, and the table goes to standard error.
# shellcheck disable=SC2086 # words
"$perf" --ranks-as-threads 2 $small --tokens 4 --verbose --csv - >"$work/out" 2>"$work/err" || fail '--verbose --csv -'
[ "$(cut -d, -f1 "$work/out" | tr '\n' ' ')" = 'backend host ' ] || fail "--csv -: $(cat "$work/out")"
grep -Eq '^ tokens( +min +median +p99){4} ' "$work/err" || fail "--verbose: $(cat "$work/err")"
for what in '' '--soak 5' '--transport-test --transport tcp' "--compare $work/r.json"; do
  # shellcheck disable=SC2086 # words
  "$perf" --ranks-as-threads 2 $small --tokens 4 $what --json - >"$work/out" 2>"$work/err" || fail "$what --json -"
  python3 -m json.tool "$work/out" >/dev/null || fail "$what --json - is no JSON: $(cat "$work/out")"
  grep -q 'ranks' "$work/err" || fail "$what --json -: no table: $(cat "$work/err")"
done
"$perf" --from "$work/r.json" --compare "$work/r.json" --plot - >"$work/out" 2>"$work/err" || fail '--plot -'
python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' "$work/out" || fail '--plot - is no SVG'
grep -q '^compared with ' "$work/err" || fail "--plot - --compare: $(cat "$work/err")"

# Pictures and comparisons, of a run and of stored reports.
# shellcheck disable=SC2086 # words
"$perf" --ranks-as-threads 2 $small --tokens 1:4 --plot "$work/run.svg" --compare "$work/r.json" >"$work/out" 2>"$work/err" ||
  fail "--plot --compare: $(cat "$work/err")"
fits 'the table with a comparison' "$work/out"
grep -q "^compared with $work/r.json of " "$work/out" || fail "--compare: $(cat "$work/out")"
grep -Eq '^ +4( +[0-9.]+~?){6}$' "$work/out" || fail "--compare has no row for 4 tokens: $(cat "$work/out")"
grep -q 'not compared' "$work/out" && fail "--compare refuses the same cases: $(cat "$work/out")"
python3 -c 'import sys, xml.etree.ElementTree as tree; assert tree.parse(sys.argv[1]).getroot().tag.endswith("}svg")' \
  "$work/run.svg" || fail 'the picture is no SVG'
"$perf" --from "$work/r.json" --plot "$work/stored.svg" --compare "$work/r.json" --compare-limit 0 >"$work/out" ||
  fail 'a report is slower than itself'
grep -q ' 1.000~$' "$work/out" || fail "a report is not as fast as itself: $(cat "$work/out")"
[ -s "$work/stored.svg" ] || fail 'no picture of a stored report'
sed -E 's/("median": )[0-9.e+-]+/\10.001/' "$work/r.json" >"$work/faster.json"
"$perf" --from "$work/r.json" --compare "$work/faster.json" --compare-limit 50 >"$work/out"
[ $? = 1 ] || fail 'a limit that is exceeded'
grep -q '^SLOWER: ' "$work/out" || fail "a limit that is exceeded: $(cat "$work/out")"
refuses "moe_perf: --compare: cannot read $work/none.json: No such file or directory" \
  --ranks-as-threads 2 --compare "$work/none.json"
"$perf" --from "$work/help" --plot "$work/x.svg" 2>"$work/err"
[ $? = 2 ] || fail 'the status of --from with no report'
grep -q "^moe_perf: --from: $work/help is not a report of moe_perf --json$" "$work/err" || fail "--from: $(cat "$work/err")"

# A tuning file: measured, replaced as a whole, and taken by jobs of which rank 0 alone has it.
echo old >"$work/x.tuning"
# shellcheck disable=SC2086 # words
"$perf" --ranks-as-threads 2 $small --tokens 4,1,2 --layout rank-major --tune "$work/x.tuning" >"$work/out" ||
  fail "--tune: $(cat "$work/out")"
[ "$(awk '/^ +[0-9]/ { printf "%s ", $1 }' "$work/out")" = '1 2 4 ' ] || fail "--tune: $(cat "$work/out")"
[ "$(tail -n 1 "$work/out")" = "$work/x.tuning has: $(tail -n 1 "$work/x.tuning")" ] || fail "--tune: $(cat "$work/out")"
[ "$(head -n 1 "$work/x.tuning")" = 'moecomm-tuning 1' ] || fail "--tune: $(cat "$work/x.tuning")"
grep -Eq '^host[a-z-]* rank-major [0-9]+$' "$work/x.tuning" || fail "--tune: $(cat "$work/x.tuning")"
grep -q '^# .* --tokens 4,1,2 --layout rank-major --tune ' "$work/x.tuning" || fail '--tune does not name its command'
[ "$(echo "$work"/x.tuning*)" = "$work/x.tuning" ] || fail "--tune leaves $(echo "$work"/x.tuning*)"
tuned() { # file of rank 0
  # shellcheck disable=SC2016 # the inner shell expands it
  MOECOMM_LOG_LEVEL=info "$moerun" --grace 0.2 --timeout 60 --no-tag -n 2 sh -c '
    if [ "$MOECOMM_RANK" = 0 ]; then export MOECOMM_TUNING="$1"; else export MOECOMM_TUNING=/none; fi
    exec "$0" --backend host --hidden 256 --topk 4 --experts 8 --iters 3 --tokens 4 --mode auto' \
    "$perf" "$1" >"$work/out" 2>"$work/err"
}
for bytes in 0 1000000; do
  { echo 'moecomm-tuning 1' && for setup in host host-full host-shared; do echo $setup flat $bytes; done; } >"$work/all"
  tuned "$work/all" || fail "a tuning file of rank 0: $(cat "$work/err")"
  [ $bytes = 0 ] && mode=HT || mode=LL
  [ "$(grep -c "mode $mode (chosen)" "$work/err")" = 2 ] || fail "a tuning file for $mode: $(cat "$work/err")"
  [ "$(grep -c ': thresholds from the tuning file of rank 0' "$work/err")" = 2 ] || fail "no log of it: $(cat "$work/err")"
done
tuned "$work/none" && fail 'a tuning file that does not exist'
[ "$(grep -c "^moe_perf: rank [01]: .*: rank 0: MOECOMM_TUNING is $work/none, which cannot be read: " "$work/err")" = 2 ] ||
  fail "a tuning file that does not exist: $(cat "$work/err")"
refuses "moe_perf: --tune: cannot write $work: it is not a regular file" --ranks-as-threads 2 --tune "$work"

if [ $failures -gt 0 ]; then
  echo "$failures checks failed"
  exit 1
fi
echo 'all checks passed'
