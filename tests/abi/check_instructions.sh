#!/bin/sh
# The library must run on every x86-64 processor. AVX instructions may occur only in the builds of the host's steps for
# processors with AVX (namespaces moe_avx2 and moe_avx512), and in the functions of ARCHIVE (libsodium), which asks the
# processor first. Usage: check_instructions.sh LIBRARY [ARCHIVE]
set -eu
library=$1
archive=${2:-}
export LC_ALL=C
foreign=
[ -z "$archive" ] || foreign=$(nm "$archive" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[tT]$/ { print $3 }')
strangers=$(objdump -d --no-show-raw-insn "$library" | foreign=$foreign awk '
  BEGIN {
    count = split(ENVIRON["foreign"], names)
    for (i = 1; i <= count; ++i) excepted["<" names[i] ">:"]
  }
  /^[0-9a-f]+ <.*>:$/ { name = $2 }
  /%[yz]mm/ || $2 ~ /^v(mov|p|add|mul|xor|cvt|broadcast|insert|extract|zeroupper)/ {
    ++found[name ~ /moe_avx/]
    if (name !~ /moe_avx/ && !(name in excepted) && !(name in told)) { told[name]; print name }
  }
  END { if (!found[1]) print "(no such instruction in the builds that are for them)" }')
[ -z "$strangers" ] && exit 0
echo "$library has instructions of AVX outside of the builds that are for them:"
echo "$strangers"
exit 1
