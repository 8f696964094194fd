#!/bin/bash
# Tunes a list of shapes as an array of Slurm, then merges its shards: two jobs, of which the second waits for the first.
#
# Usage: tools/slurm/tune.sh SHARDS OUTPUT.csv [options of gemmtune tune, without -o]
#   SBATCH_OPTIONS  for the tasks of the array ("--gpus=1 --time=60 --partition=h200")
#   MERGE_OPTIONS   for gemmtune merge ("--confirm", "--allow unanswered")
#   GEMMTUNE        the program (default: gemmtune)
# OUTPUT lies on a disk that all nodes see; journals are kept on the nodes' own (TMPDIR) until a task ends. A task that
# failed is started again by the same command: shapes that have a row are not tuned twice.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
shards=$1 output=$(realpath -m "$2") program=${GEMMTUNE:-gemmtune}
shift 2
quoted=$(printf '%q ' "$@")

read -ra sbatch_options <<< "${SBATCH_OPTIONS:-}"
array=$(sbatch --parsable --job-name=gemmtune --array=0-$((shards - 1)) --output="$output.%a.log" "${sbatch_options[@]}" \
  --wrap "exec $program tune $quoted -o $(printf %q "$output") --shard auto/$shards --journal \"\${TMPDIR:-/tmp}/gemmtune-\$SLURM_JOB_ID\"")
# afterany: a task that has shapes without a kernel ends with 1. What is missing, merge refuses by itself.
merge=$(sbatch --parsable --job-name=gemmtune-merge --dependency=afterany:"$array" --output="$output.merge.log" \
  "${sbatch_options[@]}" \
  --wrap "exec $program merge $(printf %q "${output%.csv}").*of$shards.csv --expect-shards $shards -o $(printf %q "$output") ${MERGE_OPTIONS:-}")
echo "array $array, merge $merge; log of the merge: $output.merge.log"
