#!/bin/bash
# clang-tidy over the sources: those that differ from a base commit, or all with --all. Needs a configured build folder.
#
# Usage: tidy.sh BUILD_FOLDER [--all | BASE]   (BASE: default the merge base with origin's main branch, else all)
# TIDY_SECONDS (default 900) bounds the whole run: files not reached by then are named, and it is no failure.
set -euo pipefail
build=$(realpath "$1")
base=${2:-}
cd "$(dirname "$0")/.."

if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  # On the main branch itself the last commit is what changed.
  if [ -n "$base" ] && [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || true)
  fi
fi
if [ "$base" = --all ] || [ -z "$base" ]; then
  mapfile -t files < <(git ls-files -- 'src/*.cpp')
else
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp'
                         git ls-files -o --exclude-standard -- 'src/*.cpp'; } | sort -u)
fi
# Only what the build compiles: a file of another platform has no command line. Kernels of an instruction set use GCC's
# vector built-ins, which clang does not know.
known=()
for file in "${files[@]}"; do
  [[ "$file" == */microkernels/* ]] && continue
  grep -qF "\"$PWD/$file\"" "$build/compile_commands.json" && known+=("$file")
done
if [ ${#known[@]} -eq 0 ]; then
  echo "clang-tidy: no file to look at"
  exit 0
fi

deadline=$(( $(date +%s) + ${TIDY_SECONDS:-900} ))
export deadline build
# One file a process; the exit status 99 says that time was up before the file's turn.
printf '%s\0' "${known[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c '
  if [ "$(date +%s)" -ge "$deadline" ]; then echo "clang-tidy: no time left for $0"; exit 0; fi
  clang-tidy --quiet -p "$build" --warnings-as-errors="*" "$0" 2> >(grep -v "warnings\? generated" >&2)' \
  || { echo "clang-tidy: findings above" >&2; exit 1; }
echo "clang-tidy: ${#known[@]} files"
