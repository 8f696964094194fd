// A folder of Triton configs: AITER's layouts, and the files that `tune --buckets` writes; vLLM's and SGLang's.
#pragma once

#include <string>
#include <vector>

namespace gemmtune {

/// True if the file's name is that of a Triton config: <arch>-GEMM-…, <arch>-BATCHED_GEMM-…, <arch>-MOE-…, or DEFAULT.json and
/// GEMM-… below <arch>/<backend>/gemm/<family>/.
bool is_triton_name(const std::string& path);

/// The configs that lie directly in a folder, sorted.
std::vector<std::string> triton_files_of(const std::string& folder);

/// The configs of a folder that look-up reads: those in `root` itself, those of moe, and of each architecture and family those of
/// the first of AITER's places with a default file (<arch>/<backend>/gemm/<family>, gemm/<backend>, gemm; triton_backend()
/// says of which backend). Where no place has one, all.
std::vector<std::string> triton_files_in(const std::string& root);

/// All configs, and vLLM's and SGLang's, which look-up does not read: in `root` and in folders of it (triton_3_6_0).
std::vector<std::string> config_files_in(const std::string& root);

}  // namespace gemmtune
