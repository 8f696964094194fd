#!/bin/bash
# Tries the packages of `make package`, each on a Debian 12 that has nothing else (debootstrap): installs, tunes, looks up, calls.
#
# Usage: test_packages.sh [FOLDER]       the .deb and the wheel of FOLDER (build/packages); about 10 minutes and 2 GB
#        test_packages.sh --dockerfile   the steps of the Dockerfile, without Docker; builds everything
# Needs root and debootstrap; exit status 77 and a line where they are missing.
set -euo pipefail
repository=$(realpath "$(dirname "$0")/..")
# shellcheck source=tools/debian_root.sh
. "$repository/tools/debian_root.sh"

if ! debian_root_possible; then echo "SKIPPED: test_packages.sh"; exit 77; fi
work=$(mktemp -d /var/tmp/gemmtune-packages.XXXXXX)
trap 'leave_roots; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

run() {
  echo "--- $2"
  inside "$1" "$2"
}

use_program() {  # FOLDER PROGRAM
  run "$1" "$2 --version"
  run "$1" "$2 devices"
  run "$1" "$2 shapes --model llama-3.2-1b --nsets 1"
  run "$1" "cd /tmp && $2 tune -m 16 -n 512 -k 512 --budget 60 -o tuned.csv"
  run "$1" "cd /tmp && $2 lookup -m 16 -n 512 -k 512 --table tuned.csv" | tee "$1/lookup.txt"
  grep -q 'exact' "$1/lookup.txt" || { echo "test_packages.sh: the tuned size has no exact row" >&2; exit 1; }
}

packages() {
  local deb wheel
  deb=$(find "$1" -maxdepth 1 -name 'gemmtune_*.deb' | sort | tail -n 1)
  wheel=$(find "$1" -maxdepth 1 -name 'gemmtune-*manylinux*.whl' | sort | tail -n 1)
  if [ -z "$deb" ] || [ -z "$wheel" ]; then echo "test_packages.sh: $1 has no .deb or no wheel; run make package" >&2; exit 2; fi

  debian_root "$work/deb" ca-certificates
  cp "$deb" "$work/deb/root/tmp/gemmtune.deb"
  run "$work/deb" "apt-get update -q && apt-get install --yes -q --no-install-recommends /tmp/gemmtune.deb"
  use_program "$work/deb" gemmtune
  run "$work/deb" "test -s /usr/share/doc/gemmtune/copyright && test -s /usr/share/gemmtune/models/llama-3.2-1b/config.json"
  run "$work/deb" "! ls /usr/bin | grep -q _test"
  run "$work/deb" "apt-get remove --yes -q gemmtune && ! test -e /usr/bin/gemmtune"

  debian_root "$work/wheel" ca-certificates,python3-venv,python3-numpy
  cp "$wheel" "$work/wheel/root/tmp/"
  run "$work/wheel" "python3 -m venv --system-site-packages /venv && /venv/bin/pip install --no-index /tmp/$(basename "$wheel")"
  use_program "$work/wheel" /venv/bin/gemmtune
  run "$work/wheel" "/venv/bin/python -c 'import numpy, gemmtune
y = gemmtune.linear(numpy.full((2, 8), 2, dtype=\"f4\"), numpy.full((3, 8), 3, dtype=\"f4\"))
assert (numpy.asarray(y) == 48).all(), y
print(\"linear is right\")'"
}

# The steps of the Dockerfile: FROM debian:bookworm*, RUN, WORKDIR, COPY. Others say nothing about the file system.
dockerfile() {
  local stage="" folder="" place=/ line words
  while IFS= read -r line; do
    case $line in
      "FROM "*)
        stage=$([[ $line == *" AS "* ]] && echo "${line##* AS }" || echo last)
        folder=$work/$stage place=/
        case $line in "FROM debian:bookworm"*) ;; *) echo "test_packages.sh: $line: expected debian:bookworm" >&2; exit 1 ;; esac
        debian_root "$folder" ca-certificates ;;
      "WORKDIR "*) place=${line#WORKDIR } ;;
      "RUN "*) run "$folder" "cd $place && ${line#RUN }" ;;
      "COPY --from="*)
        read -ra words <<<"${line#COPY --from=}"
        # shellcheck disable=SC2086  # the source is a pattern
        cp $work/${words[0]}/root${words[1]} "$folder/root${words[2]}" ;;
      "COPY "*)
        read -ra words <<<"${line#COPY }"
        mkdir -p "$folder/root${words[1]}"
        git -C "$repository" archive HEAD "${words[0]}" | tar -x -C "$folder/root${words[1]}" ;;
      "ENTRYPOINT "* | "CMD "* | "#"* | "") ;;
      *) echo "test_packages.sh: $line: no step that is known here" >&2; exit 1 ;;
    esac
  done <"$repository/Dockerfile"
  use_program "$folder" gemmtune
}

if [ "${1:-}" = --dockerfile ]; then dockerfile; else packages "$(realpath "${1:-$repository/build/packages}")"; fi
echo "test_packages.sh: passed"
