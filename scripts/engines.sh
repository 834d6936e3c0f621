#!/bin/sh
# Unpacks the newest wheels of engines from PyPI into build/engines/NAME, for tests that drive our adapters through the
# engines' own classes. Nothing is installed. Prints the versions.
# Usage: engines.sh [NAME...]   megatron-core (3 MB; what the step python of scripts/test.sh needs), vllm, sglang
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- megatron-core vllm sglang
for engine in "$@"; do
  case $engine in
    megatron-core) wheels="megatron-core packaging einops" ;; # its modules import the other two
    vllm | sglang) wheels=$engine ;;
    *) echo "engines.sh: no engine '$engine'; there are: megatron-core vllm sglang" >&2; exit 2 ;;
  esac
  to=build/engines/$engine
  if [ ! -e "$to/complete" ]; then
    rm -rf "$to"
    mkdir -p "$to"
    # shellcheck disable=SC2086 # the wheels are words
    python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-cache-dir --no-compile \
      --no-deps --target "$to" $wheels || { rm -rf "$to"; echo "engines.sh: $engine could not be fetched" >&2; exit 1; }
    touch "$to/complete"
  fi
  for info in "$to"/*.dist-info; do basename "$info" .dist-info; done
done
