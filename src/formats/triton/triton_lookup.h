// Which file, which bucket and which split of K a Triton kernel of AITER is launched with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/triton/triton_json.h"

namespace gemmtune {

/// The bounds of M_LEQ_x and M_GEQ_x that AITER looks for; kernels may have lists of their own.
inline constexpr std::int64_t default_triton_bounds[] = {1,   4,   8,    16,   32,   64,  128,
                                                         256, 512, 1024, 2048, 4096, 8192};

struct TritonMatch {
  const TritonBucket* bucket = nullptr;
  bool tuned = false;  // false for `any`
};

/// The largest M of small_M and of medium_M, of TritonScheme::thirds.
inline constexpr std::int64_t max_small_m = 256;
inline constexpr std::int64_t max_medium_m = 2048;
/// Of TritonScheme::moe.
inline constexpr std::int64_t max_moe_small_m = 255;
inline constexpr std::int64_t max_moe_medium_m = 1023;

/// The bucket of `m` by the rule of the file's scheme; nullopt where AITER raises an error. `bounds`
/// (ascending) matters for TritonScheme::bounds only: a key with another bound is dead. Files without `any`
/// of the other schemes have no answer for the M of a bucket they lack.
std::optional<TritonMatch> find_bucket(const TritonFile& file, std::int64_t m,
                                       std::span<const std::int64_t> bounds = default_triton_bounds);

/// What the path of a .json says: "<arch>-<FAMILY>[-B=b][-E=e][-N=n-K=k].json", and in the layout by folders
/// "<arch>/<backend>/gemm/<family>/DEFAULT.json" and "…/<FAMILY>-N=n-K=k.json". From a folder the family is
/// guessed: gemm_afp4wfp4 is GEMM-AFP4WFP4. Of vLLM and SGLang "N=n,K=k,device_name=NVIDIA_H200,dtype=fp8_w8a8,
/// block_shape=[128,128].json" (SGLang has a blank behind the comma in brackets) and "E=e,N=n,device_name=…,….json",
/// whose families are nearest_dense_family and nearest_moe_family. nullopt for what is no .json.
std::optional<TritonFileName> parse_triton_file_name(const std::string& path);

/// "gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json". B, E, and N with K, are left out where not given; without
/// `arch` it is the name in the layout by folders, where a default file is "DEFAULT.json".
std::string triton_file_name(std::string_view arch, std::string_view family, std::optional<std::int64_t> n,
                             std::optional<std::int64_t> k, std::optional<std::int64_t> b,
                             std::optional<std::int64_t> e = std::nullopt);

/// Families of vLLM's and SGLang's files, by their names.
inline constexpr std::string_view nearest_dense_family = "W8A8_BLOCK";
inline constexpr std::string_view nearest_moe_family = "FUSED_MOE";
/// vLLM's of selective_state_update, which is no GEMM.
inline constexpr std::string_view nearest_state_family = "SELECTIVE_STATE_UPDATE";
bool is_nearest_family(std::string_view family);
/// SGLang's second file of a mixture ends its specialisation.
inline constexpr std::string_view down_suffix = "_down";

struct TritonQuery {
  std::string arch = {};
  std::string family = {};  // GEMM-A8W8_BLOCKSCALE …
  std::optional<std::int64_t> n = {};
  std::optional<std::int64_t> k = {};
  std::optional<std::int64_t> b = {};
  std::string specialisation = {};  // "N4=512-N16=256-K=7168": looked for alone, in place of b, n and k
  std::string backend = {};         // triton, gluon; empty: triton, then gluon
};

struct TritonPaths {
  std::string default_file;
  std::string specialised_file;  // replaces the default wholesale; empty: there is none

  const std::string& used() const { return specialised_file.empty() ? default_file : specialised_file; }
};

/// The files AITER would read under `root` (its configs folder): the first place with a default file, and the
/// specialised file of the same place. not_found names the default files that were looked for.
Result<TritonPaths> find_triton_files(const std::string& root, const TritonQuery& query);

/// How a launch makes splits of K: one of AITER's functions.
enum class SplitRule {
  unknown,         // no rule here: nothing is said of such files
  common,          // compute_splitk_params
  preshuffled,     // of gemm_a8w8_blockscale_preshuffle: only the block shrinks
  even,            // get_splitk: splits that divide K
  even_recounted,  // get_splitk of gemm_afp4wfp4, which counts the splits again
  even_by_four,    // _get_splitk of gemm_a8wfp4, up to M = 128
};
struct LaunchRule {
  SplitRule split = SplitRule::unknown;
  std::int64_t k_divisor = 1;  // 2: the function gets bytes, two elements each
  bool capped = false;         // a block of all of K, or more, is one split of K
  std::int64_t min_block = 16;
};

/// What a launch makes of NUM_KSPLIT and BLOCK_SIZE_K for a reduction of length k.
struct SplitK {
  std::int64_t num_ksplit = 1;
  std::int64_t block_size_k = 0;
  std::int64_t splitk_block_size = 0;  // elements of K in one split
  friend bool operator==(const SplitK&, const SplitK&) = default;
};

/// By the rule of a family (triton_families.h). Errors as below; `unsupported` without a rule.
Result<SplitK> apply_split_k(const TritonConfig& config, std::int64_t k, const LaunchRule& rule);
/// By SplitRule::common. Errors: no BLOCK_SIZE_K, or a size that is not a positive whole number below 2³¹. NUM_KSPLIT defaults
/// to 1.
Result<SplitK> apply_split_k(const TritonConfig& config, std::int64_t k);

}  // namespace gemmtune
