#!/bin/bash
# Installs what building, tuning and testing need from the distribution's archive (apt-get, as root or with sudo), and oneDNN 3 from PyPI
# (onednn_library.py; without PyPI it is left out, and said).
# With everything installed it changes nothing and touches no network.
#
# Usage: install_dependencies.sh [build|check|onednn|amdgpu|gfx950|machines|package|soak]...   (default: build)
#   build  compilers, libraries, kernels of others (oneDNN, OpenBLAS)
#   check  build, and clang-format and clang-tidy, and oneDNN 3 for tests alone
#   onednn  build, and oneDNN 3 in the user's cache: gemmtune runs it in place of the distribution's from then on (docs/baselines.md)
#   amdgpu  build, and clang 19, which compiles kernels for AMD GPUs in tests, and HIP 5.2's headers
#   gfx950  build, and clang 22, which compiles for gfx950 too (of bookworm-security; others find what is newer than 19 by themselves)
#   machines  build, and Slurm of one node, Open MPI, and what installs Ray (tests/machines)
#   package  build, and what makes a .deb
#   soak   machines, and debootstrap, qemu-user and clang (libFuzzer)
set -euo pipefail

build=(cmake ninja-build g++ ccache python3
       libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev libsqlite3-dev zlib1g-dev
       libdnnl-dev libopenblas-dev
       libgtest-dev libgmock-dev libbenchmark-dev
       python3-numpy python3-venv python3-jsonschema)
check=(clang-format clang-tidy)
amdgpu=(clang-19 lld-19 llvm-19 libamdhip64-dev)
gfx950=(clang-22 lld-22 llvm-22)
machines=(slurmctld slurmd slurm-client munge openmpi-bin python3-venv python3-yaml)
package=(dpkg-dev file)
soak=("${machines[@]}" "${amdgpu[@]}" debootstrap qemu-user clang)

wanted=("${build[@]}")
onednn=()  # each a call of onednn_library.py
for group in "$@"; do
  case "$group" in
    build) ;;
    check) wanted+=("${check[@]}") onednn+=(--for-tests) ;;
    onednn) onednn+=("") ;;
    amdgpu) wanted+=("${amdgpu[@]}") ;;
    gfx950) wanted+=("${gfx950[@]}") ;;
    machines) wanted+=("${machines[@]}") ;;
    package) wanted+=("${package[@]}") ;;
    soak) wanted+=("${soak[@]}") ;;
    *) echo "install_dependencies.sh: unknown group '$group' (build, check, onednn, amdgpu, gfx950, machines, package, soak)" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_dependencies.sh: this is no Debian-like system (no dpkg or apt-get). Install by hand: ${wanted[*]}" >&2
  exit 1
fi

# Exit status 77: it was left out.
fetch_onednn() {
  local status option
  for option in "${onednn[@]}"; do
    status=0
    "$(dirname "$0")/onednn_library.py" ${option:+"$option"} >/dev/null || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || return "$status"
  done
}

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  fetch_onednn
  exit
fi

echo "installing: ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_dependencies.sh: needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
install=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}")
# The package lists may be old or absent (a fresh machine has none): install, else refresh them and install.
if ! "${as_root[@]}" "${install[@]}" >/dev/null 2>&1; then
  "${as_root[@]}" apt-get update
  "${as_root[@]}" "${install[@]}"
fi
fetch_onednn
