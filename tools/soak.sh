#!/bin/bash
# The long proofs, for a quiet machine (hours): the fresh machine, the tests with their full counts, and ten minutes of
# fuzzing for each parser. Figures of a run belong into docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "=== tests"
cmake --preset release
cmake --build --preset release
GEMMTUNE_SOAK=1 GEMMTUNE_SOAK_SECONDS=60 tools/run_tests.py build --timeout 3600

echo "=== every parser on ten minutes of damaged files"
tools/fuzz.sh 600

echo "=== the same tuning twice"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for run in 1 2; do
  build/gemmtune tune -i shapes/llama-3.2-1b.csv -o "$folder/$run.csv" --all
done
# Names may differ only inside a declared tie (docs/measuring.md); the list is for reading.
diff <(cut -d, -f3-12 "$folder/1.csv" | sort) <(cut -d, -f3-12 "$folder/2.csv" | sort) || true

echo "=== a fresh machine"
if [ "$(id -u)" -eq 0 ]; then tools/fresh_machine.sh; else sudo tools/fresh_machine.sh; fi
