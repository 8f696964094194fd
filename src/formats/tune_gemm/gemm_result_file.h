// tune_gemm's result files as gemmtune writes them: rows of its own kernels in, lines of others kept.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/tune_gemm/gemm_result_yaml.h"
#include "tuned/entry.h"

namespace gemmtune {

/// By its ending, .yaml or .yml.
bool is_yaml_path(std::string_view path);

/// tune_gemm knows plain GEMMs: no scales, no packed weight, one type of x and w.
bool is_tune_gemm_problem(const Problem& problem);

/// The keys that tune_gemm does not have. A configuration without kernelName is one of Triton's.
inline constexpr std::string_view kernel_name_parameter = "kernelName";
inline constexpr std::string_view bias_parameter = "bias_vector";

/// The size and its orders; no parameters.
GemmResult gemm_size_of(const Problem& problem);
/// A row of one of our kernels: kernelName, then its settings, under tune_gemm's keys where they mean the same
/// (BLOCK_SIZE_M, SPLIT_K, num_warps …). The time stays out if it is none.
GemmResult gemm_result_of(const TunedEntry& entry,
                          const std::vector<std::pair<std::string, std::string>>& settings);
/// Sets time and rate (not rounded); a time that may not be chosen is none.
void set_time(const Problem& problem, double us, GemmResult& result);
/// What tune_gemm takes from its command line and the file does not say: types other than fp16 (dtype_a,
/// dtype_b, dtype_c) and the bias, as further parameters.
void add_problem_parameters(const Problem& problem, GemmResult& result);

/// The problem of a result: orders absent as in gemm_size_yaml.h, types its own, else those of the options,
/// else fp16. Words of types are those of a device of `architecture`. An error names a type that nobody knows.
Result<Problem> problem_of_result(const GemmResult& result, std::optional<DataType> x_type,
                                  std::optional<DataType> y_type, std::string_view architecture);
/// True if the result says its types itself.
bool has_types(const GemmResult& result);

/// True if every item is a size without parameters.
bool is_list_of_sizes(const GemmResultFile& file);

/// ok if update_gemm_results() could write into what the file holds now; one that is not there is fine.
Status check_gemm_result_file(const std::string& path);

/// Under <path>.lock: replaces the lines of results of the same size, orders, types and bias, appends the
/// others, keeps every other byte, and replaces the file atomically. A list of sizes, and a file that is no list with an item at the
/// beginning of a line, is an error, and stays as it was.
Status update_gemm_results(const std::string& path, const std::vector<GemmResult>& results);

}  // namespace gemmtune
