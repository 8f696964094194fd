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

/// All configs of a folder, in the order in which look-up prefers them: those in `root` itself, <arch>/triton/gemm/<family>,
/// <arch>/gluon/gemm/<family>, gemm, gemm/<backend>, moe.
std::vector<std::string> triton_files_in(const std::string& root);

/// Those, which look-up reads, and vLLM's and SGLang's, which it does not: in `root` and in folders of it (triton_3_6_0).
std::vector<std::string> config_files_in(const std::string& root);

}  // namespace gemmtune
