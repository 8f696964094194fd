#!/bin/bash
# Tests the Python package on a machine with a GPU, without a network: installs a wheel into a temporary folder, runs the tests
# of tests/python on the CPU and on the GPU, measures what calls cost the host, and prints a table last. Nothing is left behind.
#
# Usage: test_python_gpu.sh [WHEEL]   (default: the one of build/python-wheel, which the test python_environment makes, else it is
#        built here, which needs the build's dependencies and scikit-build-core)
# PYTHON: the Python with PyTorch (python3). GEMMTUNE_TEST_BUDGET: seconds of each tuning (40).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wheel=${1:-}
if [ -z "$wheel" ]; then
  wheel=$(find build/python-wheel -name 'gemmtune-*.whl' 2>/dev/null | head -n 1)
fi
if [ -z "$wheel" ]; then
  echo "no wheel: building one"
  "$python" -m pip wheel . --no-deps --no-build-isolation --no-index --wheel-dir "$work" >"$work/wheel.log" 2>&1 ||
    { tail -n 20 "$work/wheel.log"; exit 1; }
  wheel=$(find "$work" -name 'gemmtune-*.whl')
fi
"$python" -m pip install --quiet --no-index --no-deps --target "$work/site" "$wheel" || exit 1

export PYTHONPATH=$work/site PYTHONUNBUFFERED=1 GEMMTUNE_CONFIG_DIR=$work/config GEMMTUNE_CACHE_DIR=${GEMMTUNE_CACHE_DIR:-$work/cache}
mkdir -p "$GEMMTUNE_CONFIG_DIR"
names=() results=() seconds=() failed=0
part() {
  local name=$1 begin status
  shift
  begin=$(date +%s)
  echo "=== $name"
  "$@"
  status=$?
  case $status in
    0) results+=(passed) ;;
    77) results+=(skipped) ;;
    *) results+=("FAILED ($status)"); failed=1 ;;
  esac
  names+=("$name") seconds+=($(($(date +%s) - begin)))
}
part "devices" "$work/site/bin/gemmtune" devices
part "structures" "$python" tests/python/layout_test.py
part "numpy on the CPU" env CUDA_VISIBLE_DEVICES= "$python" tests/python/numpy_test.py Operations Errors Processes
part "views of numpy" env CUDA_VISIBLE_DEVICES= "$python" tests/python/operands_test.py
part "PyTorch on the CPU" env CUDA_VISIBLE_DEVICES= "$python" tests/python/torch_test.py
part "PyTorch on the CPU: changes" env CUDA_VISIBLE_DEVICES= "$python" tests/python/torch_changes_test.py
part "views of PyTorch on the CPU" env CUDA_VISIBLE_DEVICES= "$python" tests/python/torch_operands_test.py
part "PyTorch, cupy, JAX on the GPU" "$python" tests/python/torch_gpu_test.py
part "checkpoints on the GPU" "$python" tests/python/checkpoints_test.py
part "vLLM plug-in, a double of vLLM" "$python" tests/python/vllm_test.py
part "host cost, GPU" "$python" tools/bench_python.py --device cuda --json "$work/cuda.json"
part "host cost, CPU" env CUDA_VISIBLE_DEVICES= "$python" tools/bench_python.py --device cpu --json "$work/cpu.json"

echo
"$python" - <<'END'
import torch
print("PyTorch", torch.__version__, torch.cuda.get_device_name(0) if torch.cuda.is_available() else "without a GPU")
END
printf '%-34s %-14s %s\n' part result seconds
for i in "${!names[@]}"; do printf '%-34s %-14s %s\n' "${names[$i]}" "${results[$i]}" "${seconds[$i]}"; done
exit "$failed"
