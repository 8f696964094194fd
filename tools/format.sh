#!/bin/bash
# Formats all C and C++ files, device sources by .clang-format-device, or with --check names those that clang-format would change (exit status 1).
set -euo pipefail
cd "$(dirname "$0")/.."

# format STYLE PATTERN …
format() {
  local style=$1
  shift
  mapfile -t files < <(git ls-files -co --exclude-standard -- "$@" | while read -r f; do
    [ -f "$f" ] && echo "$f"; done)
  [ ${#files[@]} -gt 0 ] || return 0
  if [ "$mode" = --check ]; then
    clang-format --style="$style" --dry-run --Werror "${files[@]}"
  else
    clang-format --style="$style" -i "${files[@]}"
  fi
}

mode=${1:-}
failed=0
format file '*.h' '*.cpp' '*.c' '*.inc' || failed=1
format file:.clang-format-device '*.cu' '*.cuh' || failed=1  # a style's path: since clang-format 14
exit $failed
