#!/bin/bash
# The ten commands of docs/hip.md on a machine with an AMD GPU: runs them, keeps what each prints, and packs it.
#
# Usage: first_run_hip.sh [FOLDER]     (default: gemmtune-hip-first-run, made in the working folder)
#   GEMMTUNE=path    the program (default: build/gemmtune of this checkout, else the one on PATH)
#
# The exit code is that of the last command that failed; 0 if all ended as expected.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
program=${GEMMTUNE:-$here/build/gemmtune}
if [ ! -x "$program" ]; then
  program=$(command -v gemmtune) || { echo "first_run_hip.sh: no gemmtune: run make, or set GEMMTUNE" >&2; exit 2; }
fi
folder=${1:-gemmtune-hip-first-run}
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd)
cd "$folder" || exit 2
export XDG_CACHE_HOME=$folder/cache XDG_CONFIG_HOME=$folder/config

# For a rehearsal, smaller ones: FIRST_RUN_SIZE="m n k", FIRST_RUN_LIST, FIRST_RUN_BLOCKSCALE_LIST,
# FIRST_RUN_FAMILIES="--libtype hipblaslt,simt".
read -r m n k <<<"${FIRST_RUN_SIZE:-16 1280 8192}"
list=${FIRST_RUN_LIST:-$here/shapes/llama-3.2-1b.csv}
blockscale_list=${FIRST_RUN_BLOCKSCALE_LIST:-$here/shapes/deepseek-v3_tp8_a8w8_blockscale_untuned_gemm.csv}
size=(-m "$m" -n "$n" -k "$k" --backend hip)
read -ra families <<<"${FIRST_RUN_FAMILIES:-}"
code=0
number=0

# run NAME EXPECTED-EXIT-CODES COMMAND…
run() {
  local name=$1 expected=$2 begin seconds status
  shift 2
  number=$((number + 1))
  printf '%2d. gemmtune %s\n' "$number" "$*"
  begin=$SECONDS
  "$program" "$@" >"$number-$name.out" 2>"$number-$name.err"
  status=$?
  seconds=$((SECONDS - begin))
  printf '%s\t%s\t%s\tgemmtune %s\n' "$number" "$status" "$seconds" "$*" >>summary.tsv
  if [[ " $expected " == *" $status "* ]]; then
    echo "    exit code $status after $seconds s"
  else
    echo "    exit code $status after $seconds s, expected $expected: see $folder/$number-$name.err"
    code=$status
  fi
}

: >summary.tsv
{
  uname -a
  cat /etc/os-release 2>/dev/null
  ls -l /dev/kfd /dev/dri 2>&1
  ls -d /opt/rocm* 2>&1
  command -v rocminfo >/dev/null && rocminfo
  command -v rocm-smi >/dev/null && rocm-smi
} >machine.txt 2>&1

run devices 0 devices --backend hip
if ! grep -q '^hip: available' "1-devices.out"; then
  cat 1-devices.out
  echo "first_run_hip.sh: no AMD GPU can be used here; the lines above name what is missing" >&2
  exit 1
fi
run explain 0 explain "${size[@]}"
run tune 0 tune "${size[@]}" "${families[@]}" -o one.csv -v
run lookup 0 lookup "${size[@]}" --table one.csv
run check 0 check one.csv --backend hip
run two_phase 0 tune "${size[@]}" --search two_phase --libtype hipblaslt -o all.csv
run model 0 tune -i "$list" --backend hip "${families[@]}" --budget 120 -o llama.csv
run bench 0 bench llama.csv --backend hip
run blockscale "0 1" tune -i "$blockscale_list" --backend hip "${families[@]}" --limit 4 --budget 60 -o blockscale.csv
run two_devices "0 2" tune "${size[@]}" "${families[@]}" --device hip:0,hip:1 -o two.csv

rm -rf cache
tar czf ../gemmtune-hip-first-run.tar.gz -C "$(dirname "$folder")" "$(basename "$folder")"
echo "packed: $(cd .. && pwd)/gemmtune-hip-first-run.tar.gz"
exit "$code"
