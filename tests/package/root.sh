# shellcheck shell=bash
# A clean root of the smallest set of packages, for tests to source: Debian 12, or with --ubuntu Ubuntu 24.04 with
# universe. Needs root, debootstrap and the distribution's mirror.

skip() { echo "skipped: $*"; exit 77; }

# Sets keyring to a file with Ubuntu's keys. Debian 12 lacks the package, so it comes from Debian 13, and its digest is
# the one that Debian's signed list of packages has.
find_ubuntu_keys() { # folder for the package
  local package=http://deb.debian.org/debian/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1-0.2_all.deb
  keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  [ ! -e "$keyring" ] || return
  wget -qO "$1/keys.deb" $package || skip "no Ubuntu keys: neither $keyring nor $package"
  echo "b2e7ed48431bf9e7978ae810bbdaf253093570d6e3f864e575b7c13554b81174  $1/keys.deb" | sha256sum --check --quiet || exit 1
  dpkg-deb --extract "$1/keys.deb" "$1/keys"
  keyring=$1/keys$keyring
}

# A wrong signature is a failure. Anything else may be the network, or a container that may not mount.
refuse_or_skip() { # debootstrap's output
  tail -5 "$1"
  if grep -q '^E: .*sign' "$1"; then exit 1; fi
  skip 'debootstrap failed'
}

# Sets root to the folder of a new root, or to the given one, which is kept and reused. Exits with 77 if that is not
# possible.
make_root() { # [--ubuntu] [folder]
  local suite=bookworm mirror=http://deb.debian.org/debian script=sid components=main work
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  if [ "${1:-}" = --ubuntu ]; then
    suite=noble mirror=http://archive.ubuntu.com/ubuntu script=gutsy components=main,universe
    shift
  fi
  [ "$(id -u)" = 0 ] || skip 'not root'
  command -v debootstrap >/dev/null || skip 'no debootstrap'
  unshare --mount --pid --fork true 2>/dev/null || skip 'no namespaces'
  work=$(mktemp -d)
  root=$(realpath -m "${1:-$work/root}")
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf --one-file-system '$work'" EXIT
  if [ ! -e "$root/bin/sh" ]; then
    wget -q --spider "$mirror/dists/$suite/InRelease" || skip "no $mirror/dists/$suite"
    [ $suite != noble ] || find_ubuntu_keys "$work"
    debootstrap --variant=minbase --components=$components --keyring="$keyring" $suite "$root" $mirror $script \
      >"$work/log" 2>&1 || refuse_or_skip "$work/log"
  fi
  grep -qs "^VERSION_CODENAME=$suite\$" "$root/etc/os-release" || { echo "FAILED: $root is no $suite"; exit 1; }
  cp /etc/resolv.conf "$root/etc/"
}

# Copies the files of a checkout that git knows or would add.
copy_checkout() { # checkout, folder
  rm -rf "$2"
  mkdir -p "$2"
  git -C "$1" -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    tar -C "$1" --null --files-from=- --ignore-failed-read -c 2>/dev/null | tar -C "$2" -x
}

# Runs a script of the root there. Mounts and processes end with the namespace.
run_in_root() { # folder in the root, script in it
  # shellcheck disable=SC2016 # the shell inside reads them
  ROOT=$root FOLDER=$1 SCRIPT=$2 unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && mount --rbind /sys "$ROOT/sys" &&
    exec chroot "$ROOT" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
      sh -c "cd \"\$1\" && exec bash \"\$2\"" sh "$FOLDER" "$SCRIPT"'
}

# Runs a script of the root there and shows what it prints. The script must end well and its output have some lines.
run_and_expect() { # folder in the root, script in it; then pairs: how often at least, regular expression
  local out status
  out=$(mktemp)
  run_in_root "$1" "$2" 2>&1 | tee "$out"
  status=${PIPESTATUS[0]}
  shift 2
  while [ $# -gt 0 ]; do
    [ "$(grep -Ec "$2" "$out")" -ge "$1" ] || { echo "FAILED: not $1 times: $2"; status=1; }
    shift 2
  done
  rm -f "$out"
  return "$status"
}
