#!/bin/sh
# moe_model computes a case and refuses a wrong one. The plot in docs must be what it computes today.
# MOECOMM_UPDATE_DOCS=1 rewrites the plot. Usage: moe_model_test.sh PATH_OF_MOE_MODEL SOURCE_DIR
set -eu
model=$1 image=$2/docs/images/scaling.svg
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$model" --machine fabrics --domain 64 --ranks 64,128 --dispatch-rows bf16 --domain-limit 2 --json "$dir/case.json" |
  grep -q '^LL, domains of 64'
python3 -c '
import json, sys
cases = json.load(open(sys.argv[1]))["cases"]
assert [case["ranks"] for case in cases] == [64, 128], cases
assert cases[0]["ll"]["dispatch"]["rail_bytes"] == 0
assert cases[1]["ht"]["dispatch"]["bound"] == "rail"' "$dir/case.json"
"$model" --transport proxy --ranks 2048 | grep -q 'posting'
status=0
"$model" --ranks 20 2>"$dir/error" || status=$?
[ "$status" = 2 ] && grep -q '20 ranks do not divide into domains of 8' "$dir/error"
status=0
"$model" --topk 0 >/dev/null 2>&1 || status=$?
[ "$status" = 2 ]

"$model" --plot="$dir/scaling.svg" | grep -q '^Published and measured'
status=0
"$model" --ranks 64 --plot="$dir/case.svg" >/dev/null 2>"$dir/error" || status=$?
[ "$status" = 2 ] && grep -q 'and can be combined only with --json' "$dir/error" && [ ! -e "$dir/case.svg" ]
if [ -n "${MOECOMM_UPDATE_DOCS:-}" ]; then
  cp "$dir/scaling.svg" "$image"
fi
cmp "$dir/scaling.svg" "$image" || {
  echo "docs/images/scaling.svg is old. Run: MOECOMM_UPDATE_DOCS=1 ctest --preset dev -R MoeModel"
  exit 1
}
if said=$("$model" 2>&1 >/dev/full); then
  echo 'lost output is taken for success'
  exit 1
fi
[ "$said" = 'moe_model: cannot write to file: No space left on device' ]
if said=$("$model" --help 2>&1 >/dev/full); then
  echo 'lost help is taken for success'
  exit 1
fi
[ "$said" = 'moe_model: standard output: No space left on device; its output is lost' ]
if "$model" --json=/dev/full >/dev/null 2>&1; then
  echo 'a lost report is taken for success'
  exit 1
fi
echo 'all checks passed'
