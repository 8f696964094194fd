#!/bin/sh
# prebuild_kernels.sh PROGRAM: where GEMMTUNE_PREBUILD (AITER's name: PREBUILD_KERNELS) is set and not 0, compiles the
# kernels that the tuned files of this user name, so that the first service compiles nothing. Rows of other devices are
# left alone; a row that cannot be built here is said and is no failure of an installation.
set -eu

case "${GEMMTUNE_PREBUILD:-${PREBUILD_KERNELS:-0}}" in
  0 | false | off | no) exit 0 ;;
esac
"$1" cache warm || echo "prebuild_kernels: not all kernels were built (exit code $?)" >&2
