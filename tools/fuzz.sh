#!/bin/bash
# Fuzzes every parser of file formats, with libFuzzer and sanitizers where clang has them, else with the driver of
# tests/fuzz. What fails is kept in build-fuzz/tests/fuzz; it belongs into a folder of tests/data that tests/fuzz/CMakeLists.txt names, where
# `make test` runs it.
#
# Usage: fuzz.sh [SECONDS]   (a parser; default: 60)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

sanitizers=address,undefined
compilers=()
if command -v clang++ >/dev/null; then
  compilers=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++)
  sanitizers=fuzzer-no-link,$sanitizers
fi
cmake -S . -B build-fuzz -G Ninja "${compilers[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -g1" \
  -DGEMMTUNE_SANITIZE=$sanitizers -DGEMMTUNE_FUZZ_SECONDS="$seconds" >/dev/null
cmake --build build-fuzz --target fuzz_targets
tools/run_tests.py build-fuzz/tests/fuzz
