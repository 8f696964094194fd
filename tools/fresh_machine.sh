#!/bin/bash
# Proves the two commands on a machine that has nothing: debootstraps Debian 12 with git, make and certificates into
# a folder, clones this repository (its last commit) into it and runs `make tune`, `make tune` again and `make test`.
#
# Usage: fresh_machine.sh [--keep] [FOLDER]   (needs root and debootstrap; about 4 GB; default: a temporary folder)
# The mirror is the host's own (/etc/apt). GEMMTUNE_MIRROR names another.
set -euo pipefail

keep=no
if [ "${1:-}" = --keep ]; then keep=yes; shift; fi
repository=$(realpath "$(dirname "$0")/..")
suite=bookworm

if [ "$(id -u)" -ne 0 ]; then echo "fresh_machine.sh: needs root (debootstrap, chroot, mount)" >&2; exit 2; fi
command -v debootstrap >/dev/null || { echo "fresh_machine.sh: debootstrap is missing (apt-get install debootstrap)" >&2; exit 2; }

# The first archive of the host that carries the suite, from one-line and deb822 sources.
find_mirror() {
  {
    sed -nE "s/^deb +(\[[^]]*\] +)?([^ ]+) +$suite .*/\2/p" /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    awk -v suite="$suite" 'BEGIN { RS = ""; FS = "\n" }
      { uri = ""; found = 0
        for (i = 1; i <= NF; i++) {
          if ($i ~ /^URIs:/) { split($i, part, /[ \t]+/); uri = part[2] }
          if ($i ~ /^Suites:/ && " " $i " " ~ "[ \t]" suite "[ \t]") found = 1 }
        if (uri != "" && found) print uri }' /etc/apt/sources.list.d/*.sources
  } 2>/dev/null | head -n 1
}
mirror=${GEMMTUNE_MIRROR:-$(find_mirror)}
if [ -z "$mirror" ]; then
  echo "fresh_machine.sh: no archive of $suite in /etc/apt/sources.list*; set GEMMTUNE_MIRROR" >&2
  exit 2
fi

folder=${1:-$(mktemp -d /var/tmp/gemmtune-fresh.XXXXXX)}
root=$folder/root
mkdir -p "$root"
folder=$(realpath "$folder")
root=$folder/root
if [ -n "$(ls -A "$root")" ]; then echo "fresh_machine.sh: $root is not empty" >&2; exit 2; fi

clean_up() {
  for mount in dev/shm dev sys proc; do
    if mountpoint -q "$root/$mount"; then umount "$root/$mount" || umount -l "$root/$mount"; fi
  done
  # Nothing is removed while anything is still mounted below.
  if [ "$keep" = no ] && ! grep -qF " $root/" /proc/mounts; then rm -rf --one-file-system "$root"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

echo "fresh machine: $suite from $mirror in $root"
debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" "$mirror" >"$folder/debootstrap.log" 2>&1 \
  || { tail -n 20 "$folder/debootstrap.log" >&2; exit 1; }
git clone --quiet --no-hardlinks "file://$repository" "$root/gemmtune"

# The network of the host: names, hosts, proxy and the configuration of apt (proxies, certificates of a mirror).
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/hosts "$root/etc/hosts"
if [ -d /usr/local/share/ca-certificates ]; then
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >/dev/null 2>&1 || true
fi
grep -hiE '^ *Acquire::https?::' /etc/apt/apt.conf /etc/apt/apt.conf.d/* >"$root/etc/apt/apt.conf.d/99host" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
mkdir -p "$root/dev/shm"

inside() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LC_ALL=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
    chroot "$root" /bin/sh -c "cd /gemmtune && $1"
}
step() {
  local start end
  start=$(date +%s)
  echo "--- $1"
  inside "$1" 2>&1 | tee "$folder/$2.log"
  end=$(date +%s)
  echo "--- $1: $((end - start)) s"
}
step "make tune" tune
step "make tune" tune-again
grep -q "nothing to do" "$folder/tune-again.log" || { echo "fresh machine: the second 'make tune' did not say 'nothing to do'" >&2; exit 1; }
step "make test" test
echo "fresh machine: passed; logs in $folder"
