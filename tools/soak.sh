#!/bin/bash
# The long proofs, for a quiet machine (hours): the fresh machine, the tests with their full counts, many machines, and ten minutes of
# fuzzing for each parser. Figures of a run belong into bench/results.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "=== tests"
[ -x build/triton/bin/python ] || python3 -m venv build/triton
build/triton/bin/pip install --quiet triton==3.9.0
cmake --preset release
cmake --build --preset release --target all gemmtune_gpu_tests
GEMMTUNE_SOAK=1 GEMMTUNE_SOAK_SECONDS=60 tools/run_tests.py build --timeout 7200

echo "=== many machines: mpirun, a Slurm of one node, the commands of Kubernetes, Ray"
tests/machines/mpi_test.py
tests/machines/kubernetes_test.py
if [ "$(id -u)" -eq 0 ]; then tests/machines/slurm_test.py; else sudo tests/machines/slurm_test.py; fi
[ -x build/ray/bin/python ] || python3 -m venv build/ray
build/ray/bin/pip install --quiet ray
build/ray/bin/python tests/machines/ray_test.py

echo "=== real vLLM on this CPU"
tools/test_vllm_cpu.sh build

echo "=== every parser on ten minutes of damaged files"
tools/fuzz.sh 600

echo "=== 60 shapes twice: the same winners, none slower than the default"
tools/repeat_tuning.py build/gemmtune bench/repeat_60.csv

echo "=== what isolation costs"
tools/isolation_tax.py build/gemmtune shapes/llama-3.2-1b.csv

echo "=== a fresh machine"
if [ "$(id -u)" -eq 0 ]; then tools/fresh_machine.sh; else sudo tools/fresh_machine.sh; fi

echo "=== the packages, each on a Debian that has nothing else"
make package
if [ "$(id -u)" -eq 0 ]; then tools/test_packages.sh; else sudo tools/test_packages.sh; fi

echo "=== the steps of the Dockerfile"
if [ "$(id -u)" -eq 0 ]; then tools/test_packages.sh --dockerfile; else sudo tools/test_packages.sh --dockerfile; fi
