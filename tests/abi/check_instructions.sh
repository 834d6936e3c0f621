#!/bin/sh
# The library must run on every x86-64 processor. AVX instructions may occur only in the builds of the host's steps for
# processors with AVX (namespaces moe_avx2 and moe_avx512). Usage: check_instructions.sh LIBRARY
set -eu
library=$1
export LC_ALL=C
strangers=$(objdump -d --no-show-raw-insn "$library" | awk '
  /^[0-9a-f]+ <.*>:$/ { name = $2 }
  /%[yz]mm/ || $2 ~ /^v(mov|p|add|mul|xor|cvt|broadcast|insert|extract|zeroupper)/ {
    ++found[name ~ /moe_avx/]
    if (name !~ /moe_avx/ && !(name in told)) { told[name]; print name }
  }
  END { if (!found[1]) print "(no such instruction in the builds that are for them)" }')
[ -z "$strangers" ] && exit 0
echo "$library has instructions of AVX outside of the builds that are for them:"
echo "$strangers"
exit 1
