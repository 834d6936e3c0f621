#!/bin/busybox sh
# shellcheck shell=dash
# The first process of the machine that run.sh boots, from the initramfs. It loads the drivers and mounts the folder
# that run.sh shares. guest.sh in that folder does the rest.
bb=/bin/busybox
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
for module in $($bb cat /modules/order); do
  $bb insmod "/modules/$module.ko" || echo "rxe_vm: no $module" >/dev/kmsg
done
if $bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none ctl /ctl; then
  $bb sh /ctl/guest.sh
fi
$bb sync
$bb poweroff -f
