# shellcheck shell=bash
# A clean Debian 12 of the smallest set of packages, for tests to source. Needs root, debootstrap and Debian's mirror.

skip() { echo "skipped: $*"; exit 77; }

# Sets root to the folder of a new root, or to the given one, which is kept and reused. Exits with 77 if that cannot be.
make_root() { # [folder]
  local mirror=http://deb.debian.org/debian suite=bookworm
  [ "$(id -u)" = 0 ] || skip 'not root'
  command -v debootstrap >/dev/null || skip 'no debootstrap'
  unshare --mount --pid --fork true 2>/dev/null || skip 'no namespaces'
  if [ $# -gt 0 ]; then
    root=$(realpath -m "$1")
  else
    root=$(mktemp -d)
    trap 'rm -rf --one-file-system "$root"' EXIT
  fi
  if [ ! -e "$root/bin/sh" ]; then
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -5 "$root.log"; skip 'debootstrap failed'; }
    rm -f "$root.log"
  fi
  cp /etc/resolv.conf "$root/etc/"
}

# Runs a script of the root there. Mounts and processes end with the namespace.
run_in_root() { # folder in the root, script in it
  # shellcheck disable=SC2016 # the shell inside reads them
  ROOT=$root FOLDER=$1 SCRIPT=$2 unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && mount --rbind /sys "$ROOT/sys" &&
    exec chroot "$ROOT" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
      sh -c "cd \"\$1\" && exec bash \"\$2\"" sh "$FOLDER" "$SCRIPT"'
}
