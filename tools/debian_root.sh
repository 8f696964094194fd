#!/bin/bash
# Functions for a Debian 12 in a folder, to be sourced: needs root and debootstrap. The mirror is the host's own (/etc/apt);
# GEMMTUNE_MIRROR names another. GEMMTUNE_ROOT_CCACHE is a ccache folder that builds in there use.
#
#   debian_root_possible             says on stderr what is missing, and returns 1
#   debian_root FOLDER PACKAGE,...   makes FOLDER/root, with the network of the host
#   inside FOLDER COMMAND            runs a command there in a clean environment
#   leave_roots [keep]               unmounts all of them, and removes them unless `keep`

suite=bookworm
roots=()

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

debian_root_possible() {
  if [ "$(id -u)" -ne 0 ]; then echo "needs root (debootstrap, chroot, mount)" >&2; return 1; fi
  command -v debootstrap >/dev/null || { echo "debootstrap is missing (apt-get install debootstrap)" >&2; return 1; }
  mirror=${GEMMTUNE_MIRROR:-$(find_mirror)}
  if [ -z "$mirror" ]; then echo "no archive of $suite in /etc/apt/sources.list*; set GEMMTUNE_MIRROR" >&2; return 1; fi
}

debian_root() {
  local folder=$1 root=$1/root
  mkdir -p "$root"
  if [ -n "$(ls -A "$root")" ]; then echo "$root is not empty" >&2; return 1; fi
  roots+=("$root")
  echo "Debian: $suite from $mirror in $root"
  debootstrap --variant=minbase --include="$2" "$suite" "$root" "$mirror" >"$folder/debootstrap.log" 2>&1 \
    || { tail -n 20 "$folder/debootstrap.log" >&2; return 1; }
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
  if [ -n "${GEMMTUNE_ROOT_CCACHE:-}" ]; then
    mkdir -p "$root/root/.cache/ccache"
    mount --bind "$GEMMTUNE_ROOT_CCACHE" "$root/root/.cache/ccache"
  fi
}

inside() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LC_ALL=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
    chroot "$1/root" /bin/sh -c "$2"
}

leave_roots() {
  local root mount
  for root in "${roots[@]}"; do
    for mount in root/.cache/ccache dev/shm dev sys proc; do
      if mountpoint -q "$root/$mount"; then umount "$root/$mount" || umount -l "$root/$mount"; fi
    done
    # Nothing is removed while anything is still mounted below.
    if [ "${1:-}" != keep ] && ! grep -qF " $root/" /proc/mounts; then rm -rf --one-file-system "$root"; fi
  done
}
