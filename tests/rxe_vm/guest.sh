# init.sh runs this in the machine with busybox. It puts a writable layer over this host's root, makes the devices
# (network.sh), runs the command and leaves its status in /ctl.
# shellcheck shell=sh
bb=/bin/busybox
fail() { echo "$*" >/ctl/error; $bb sync; $bb poweroff -f; }

# The host's root is never written. Files that programs write go to memory and are lost at the end.
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host || fail "no root"
$bb mount -t tmpfs -o mode=755 top /top || fail "no memory for writes"
$bb mkdir /top/upper /top/work
$bb mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work top /new || fail "no overlay"
for each in dev proc sys; do
  $bb mkdir -p "/new/$each"
  $bb mount -o bind "/$each" "/new/$each"
done
$bb mkdir -p /new/dev/shm
$bb mount -t tmpfs shm /new/dev/shm
[ -e /new/dev/fd ] || $bb ln -s /proc/self/fd /new/dev/fd
$bb mount -t tmpfs run /new/run
$bb mkdir /new/run/ctl
$bb mount -o bind /ctl /new/run/ctl

$bb chroot /new /bin/sh /run/ctl/network.sh >/ctl/network.log 2>&1 || fail "network.sh failed"

# The command's output leaves through two serial ports, which are found by name.
for port in /sys/class/virtio-ports/*; do
  case $($bb cat "$port/name") in
    out) out=/dev/${port##*/} ;;
    err) err=/dev/${port##*/} ;;
  esac
done
$bb chroot /new /bin/bash /run/ctl/command </dev/null >"$out" 2>"$err"
echo $? >/ctl/status
