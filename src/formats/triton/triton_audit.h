// What is wrong with Triton configs, bucket by bucket.
#pragma once

#include <span>
#include <vector>

#include "formats/triton/triton_json.h"
#include "tuned/finding.h"

namespace gemmtune {

/// Findings of each file, by line; Finding::source is an index into `files`:
/// - duplicate_key: a key twice, or a file of a name that an earlier file has;
/// - missing_bucket: M for which AITER raises an error, and gemmtune has no answer of this file;
/// - unreachable: a bucket that no M finds: a bound that the family's kernel does not look for, a key of another scheme, one
///   whose M others answer;
/// - unread_key: a parameter that neither AITER's kernels nor, in a bucket with a kernelName, that kernel reads;
/// - unknown_kernel: a kernelName that is none of gemmtune's;
/// - wrong_size: sizes of the name that the operation cannot have; a block of K beyond the block of a scale;
/// - wrong_value: a value that Triton cannot compile (a block that is no power of two) or that divides by zero, a null bucket;
/// - other_split: AITER launches another split or block of K than the bucket says;
/// - wrong_key: a key that int() refuses, which ends vLLM or SGLang.
/// Of a family that is not known here (triton_families.h) parameters and splits are not judged.
std::vector<Finding> audit_triton_files(std::span<const TritonFile> files);

}  // namespace gemmtune
