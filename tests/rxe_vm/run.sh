#!/bin/bash
# Runs a command in a virtual machine with two RDMA devices in software (Soft-RoCE), rxe0 and rxe1. The wire between
# them can lose packets (tc qdisc add dev v0 root netem loss 1%). Needs neither root nor KVM. Boots in about 6 s.
# Usage: run.sh [-t SECONDS] [-e NAME=VALUE]... COMMAND [ARGUMENT...]
#   -t  limit for everything (default 150)      -e  passes an environment variable
# The command runs as root, in this directory, and sees this host's files. It cannot change them: what it writes is lost
# at the end. Its output appears here, and its input is empty. The processor has no AVX-512.
# Status: the command's; 124 at the limit; 125 if the machine does not come up; 77, with the reason, if QEMU or the
# kernel is missing (make_initramfs.sh fetches it). MOECOMM_RXE_VM_CACHE, MOECOMM_RXE_VM_ACCEL (tcg,thread=multi; kvm
# where it works).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${MOECOMM_RXE_VM_CACHE:-$here/../../build/rxe_vm}
limit=150
handed=()
while getopts t:e: option; do
  case $option in
    t) limit=$OPTARG ;;
    e) handed+=("$OPTARG") ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "usage: run.sh [-t SECONDS] [-e NAME=VALUE]... COMMAND [ARGUMENT...]" >&2; exit 2; }

unavailable() { echo "rxe_vm: skipped: $*" >&2; exit 77; }
command -v qemu-system-x86_64 >/dev/null || unavailable "no qemu-system-x86_64; install qemu-system-x86"
command -v rdma >/dev/null || [ -x /usr/sbin/rdma ] || unavailable "no rdma; install iproute2"
[ -e "$cache/stamp" ] || unavailable "no kernel in $cache; $here/make_initramfs.sh fetches it"

# The folder that both sides see. The command goes in, and its status comes out.
control=$(mktemp -d "${TMPDIR:-/tmp}/rxe_vm.XXXXXX")
machine=
leave() {
  [ -z "$machine" ] || kill "$machine" 2>/dev/null || true
  rm -rf "$control"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp "$here/guest.sh" "$here/network.sh" "$control"
{
  printf 'export PATH=%q HOME=%q TERM=dumb\n' "$PATH" "${HOME:-/root}"
  for each in "${handed[@]}"; do printf 'export %q\n' "$each"; done
  printf 'cd %q || exit 125\n' "$PWD"
  printf '%q ' "$@"
  echo
} >"$control/command"

cpus=$(nproc)
devices=(-device virtio-serial-pci)
for stream in 3:out 4:err; do
  devices+=(-add-fd "fd=${stream%:*},set=${stream%:*}")
  devices+=(-chardev "file,id=${stream#*:},path=/dev/fdset/${stream%:*},append=on")
  devices+=(-device "virtserialport,chardev=${stream#*:},name=${stream#*:}")
done
devices+=(-fsdev "local,id=ctl,path=$control,security_model=none" -device "virtio-9p-pci,fsdev=ctl,mount_tag=ctl")
devices+=(-fsdev "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap")
devices+=(-device "virtio-9p-pci,fsdev=host,mount_tag=host")
timeout --foreground -k 5 "$limit" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
  -machine q35 -accel "${MOECOMM_RXE_VM_ACCEL:-tcg,thread=multi}" -cpu max -smp "$((cpus < 4 ? cpus : 4))" -m 1024 \
  -kernel "$cache/vmlinuz" -initrd "$cache/initramfs.gz" -append "console=ttyS0 quiet panic=-1 tsc=reliable" \
  -chardev "file,id=console,path=$control/console.log" -serial chardev:console "${devices[@]}" \
  3>&1 4>&2 >"$control/qemu.log" 2>&1 </dev/null &
machine=$!
status=0
wait "$machine" || status=$?
machine=

[ ! -s "$control/status" ] || exit "$(cat "$control/status")"
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
  echo "rxe_vm: stopped after $limit s" >&2
  exit 124
fi
echo "rxe_vm: the machine did not run the command (QEMU: $status)" >&2
for log in error qemu.log network.log console.log; do
  [ ! -s "$control/$log" ] || tail -n 30 "$control/$log" | sed "s/^/$log: /" >&2
done
exit 125
