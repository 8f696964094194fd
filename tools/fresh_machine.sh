#!/bin/bash
# Proves the two commands on a machine that has nothing: debootstraps Debian 12 with git, make and certificates into
# a folder, clones this repository (its last commit) into it and runs `make tune`, `make tune` again and `make test`.
#
# Usage: fresh_machine.sh [--keep] [FOLDER]   (needs root and debootstrap; about 4 GB; default: a temporary folder)
# The mirror is the host's own (/etc/apt). GEMMTUNE_MIRROR names another.
set -euo pipefail

keep=
if [ "${1:-}" = --keep ]; then keep=keep; shift; fi
repository=$(realpath "$(dirname "$0")/..")
# shellcheck source=tools/debian_root.sh
. "$repository/tools/debian_root.sh"

debian_root_possible || exit 2
folder=${1:-$(mktemp -d /var/tmp/gemmtune-fresh.XXXXXX)}
mkdir -p "$folder"
folder=$(realpath "$folder")
trap 'leave_roots $keep' EXIT
trap 'exit 130' INT TERM

debian_root "$folder" git,make,ca-certificates || exit 2
git clone --quiet --no-hardlinks "file://$repository" "$folder/root/gemmtune"

step() {
  local start end
  start=$(date +%s)
  echo "--- $1"
  inside "$folder" "cd /gemmtune && $1" 2>&1 | tee "$folder/$2.log"
  end=$(date +%s)
  echo "--- $1: $((end - start)) s"
}
step "make tune" tune
step "make tune" tune-again
grep -q "nothing to do" "$folder/tune-again.log" || { echo "fresh machine: the second 'make tune' did not say 'nothing to do'" >&2; exit 1; }
step "make test" test
echo "fresh machine: passed; logs in $folder"
