#!/bin/bash
# Checks the words that bash completes for moerun. Usage: completion_test.sh COMPLETION_OF_MOERUN
# shellcheck source=/dev/null
. "$1"
_command_offset() { COMPREPLY=("the command's words from $1 on"); }
status=0
completes() { # the expected words, and the words typed so far
  local wanted=$1
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _moerun
  [ "${COMPREPLY[*]}" = "$wanted" ] && return
  echo "$*: completed to '${COMPREPLY[*]}', not '$wanted'"
  status=1
}
completes --root-host moerun --ro
completes 'core none share' moerun --bind ''
completes share moerun -n 4 --bind s
completes '' moerun ls
completes "the command's words from 3 on" moerun -n 4 moe_perf --ro
completes "the command's words from 5 on" moerun --no-tag --ranks = 4 moe_perf --ro
exit $status
