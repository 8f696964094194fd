#!/bin/bash
# Runs every Google Benchmark program of a build folder, one after another.
# Usage: run_benchmarks.sh BUILD_FOLDER [benchmark arguments ...]
set -euo pipefail
build=$1
shift
found=no
for program in "$build"/bench/bench_*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  found=yes
  echo "--- $(basename "$program")"
  "$program" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true "$@"
done
[ "$found" = yes ] || { echo "no benchmark programs in $build/bench" >&2; exit 1; }
