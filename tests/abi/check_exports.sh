#!/bin/sh
# The library must export exactly the functions of exports.txt, and these must be the functions that moecomm.h declares.
# Usage: check_exports.sh LIBRARY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
library=$1
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '{print $NF}' | sort >"$work/exported"
sed -n 's/^MOE_API .*[ *]\(moe[A-Za-z]*\)(.*/\1/p' "$here/../../include/moecomm.h" | sort >"$work/declared"

status=0
diff -u "$here/exports.txt" "$work/exported" || { echo "$library exports (+) something else than exports.txt (-)"; status=1; }
diff -u "$here/exports.txt" "$work/declared" || { echo "moecomm.h declares (+) something else than exports.txt (-)"; status=1; }

exit $status
