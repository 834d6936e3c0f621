#!/bin/bash
# Makes what run.sh boots, vmlinuz and initramfs.gz, from Debian's generic kernel. The kernel package (70 MB) is
# downloaded and unpacked, never installed. Does nothing if both files are there. Usage: make_initramfs.sh
#   MOECOMM_RXE_VM_CACHE   where they are kept (default: build/rxe_vm); 11 MB
#   MOECOMM_RXE_VM_KERNEL  a linux-image-*.deb to use instead of apt's
# Needs apt-get, dpkg-deb and busybox-static. Exits with 77 if the files cannot be made here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${MOECOMM_RXE_VM_CACHE:-$here/../../build/rxe_vm}

# In this order, each module after those it depends on. '?' marks modules that some kernels have built in. rxe uses
# crc32 without declaring the dependency. CRIU needs the last line's.
modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay veth '?sch_netem' '?crc32_generic' ib_uverbs rdma_rxe
  '?crc32c_generic' nf_tables unix_diag inet_diag tcp_diag udp_diag raw_diag netlink_diag af_packet_diag tun)

unavailable() { echo "rxe_vm: $*" >&2; exit 77; }

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/lock"
flock 9 # another job may be making the same files
stamp=$(sha256sum "$here/make_initramfs.sh" "$here/init.sh" | sha256sum | cut -c1-16)
[ "$(cat "$cache/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

busybox=$(command -v busybox) || unavailable "no busybox; install busybox-static"
! ldd "$busybox" >/dev/null 2>&1 || unavailable "$busybox is not static; install busybox-static"
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The cloud kernel, common in containers, has neither rxe nor 9p.
download() {
  local name
  name=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n1)
  [ -n "$name" ] && (cd "$work" && apt-get -qq download -o APT::Sandbox::User=root "$name")
}
package=${MOECOMM_RXE_VM_KERNEL:-}
if [ -z "$package" ]; then
  # apt's package lists may be old or empty.
  download 2>/dev/null || { apt-get -qq update 2>/dev/null && download; } ||
    unavailable "the kernel package (linux-image-amd64 of Debian) cannot be downloaded"
  package=$(find "$work" -name 'linux-image-*.deb')
fi
dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work" --wildcards './boot/vmlinuz-*' '*/lib/modules/*' './lib/modules/*' 2>/dev/null ||
  [ -d "$work/boot" ] || unavailable "$package is no kernel package of Debian"

declare -A file_of added
while read -r file; do
  name=${file##*/}
  name=${name%%.ko*}
  file_of[${name//-/_}]=$file
done < <(find "$work" -name '*.ko*')

order=()
# A module's section .modinfo lists its dependencies.
add() { # name
  local name=${1#\?} file depends each
  name=${name//-/_}
  [ -z "${added[$name]:-}" ] || return 0
  added[$name]=yes
  file=${file_of[$name]:-}
  if [ -z "$file" ]; then
    [ "$1" != "${1#\?}" ] || find "$work" -name modules.builtin -exec grep -q "/${name//_/[-_]}\.ko" {} + ||
      unavailable "the kernel has no module $name"
    return 0
  fi
  case $file in *.xz) xz -d "$file"; file=${file%.xz} ;; esac
  depends=$(grep -aoz 'depends=[a-z0-9_,-]*' "$file" | tr -d '\0')
  depends=${depends#depends=}
  for each in ${depends//,/ }; do add "$each"; done
  cp "$file" "$work/root/modules/$name.ko"
  order+=("$name")
}
mkdir -p "$work"/root/{bin,dev,proc,sys,modules,ctl,host,top,new}
for module in "${modules[@]}"; do add "$module"; done
printf '%s\n' "${order[@]}" >"$work/root/modules/order"

cp "$busybox" "$work/root/bin/busybox"
cp "$here/init.sh" "$work/root/init"
chmod 755 "$work/root/init"
(cd "$work/root" && find . | "$busybox" cpio -o -H newc -R 0:0 2>/dev/null) | gzip -1 >"$cache/initramfs.gz"
cp "$work"/boot/vmlinuz-* "$cache/vmlinuz"
echo "$stamp" >"$cache/stamp"
echo "rxe_vm: $(basename "$work"/boot/vmlinuz-*), ${#order[@]} modules" >&2
