#!/bin/bash
# A healthy job that logs everything runs to its end, whatever happens to its standard error.
# Usage: log_lost_test.sh MOERUN MISHAP_RANK
set -eu
moerun=$1 rank=$2
export MOECOMM_LOG_LEVEL=info

try() { # NAME SHELL, which runs "$0"
  echo "standard error is $1:"
  "$moerun" -n 2 --timeout 60 bash -c "$2" "$rank" || { echo "FAILED: standard error is $1"; exit 1; }
}

try 'a full disk' '"$0" --steps 20 2>/dev/full'
try 'closed' '"$0" --steps 20 2>&-'
try 'a pipe that nobody reads any more' '{ "$0" --steps 20 2>&1 >&3 | true; exit "${PIPESTATUS[0]}"; } 3>&1'
