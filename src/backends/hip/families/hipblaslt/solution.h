// A hipBLASLt solution as a config: its index, the hash of its name, and the build of the library that both are of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/hip/hip_api.h"
#include "candidates/config.h"
#include "problem/problem.h"

namespace gemmtune::hip {

/// Keys of the kernelName, in their order, which is a promise.
inline constexpr const char* index_key = "sol";
inline constexpr const char* name_key = "name";
inline constexpr const char* build_key = "lib";
/// What the absence of a key means: the library's own choice; a name or a build that is not compared.
inline constexpr const char* own_choice = "own";
inline constexpr const char* any_name = "0";
inline constexpr const char* any_build = "any";

/// A number for a solution's name, never 0.
std::string name_number(std::string_view solution_name);

/// The kernelName that runs a row of AITER's with libtype hipblaslt, hipblast or torch.
std::string kernel_name_of_row(std::string_view libtype, std::int64_t solution_index,
                               std::string_view kernel_name);

/// One product, described to the library; y as the column-major [N, M] product of w and xᵀ. Not for two threads at
/// once: pointers are attributes.
class LtDescription {
 public:
  static Result<LtDescription> make(const api::HipblasLt& lt, const Problem& problem);
  LtDescription(LtDescription&& other) noexcept { *this = std::move(other); }
  LtDescription& operator=(LtDescription&& other) noexcept;
  LtDescription(const LtDescription&) = delete;
  LtDescription& operator=(const LtDescription&) = delete;
  ~LtDescription();

  int set(int attribute, const void* value, std::size_t bytes) const {
    return lt_->matmul_set(matmul, attribute, value, bytes);
  }

  api::LtMatmul matmul = nullptr;
  api::LtLayout w = nullptr;
  api::LtLayout x = nullptr;
  api::LtLayout y = nullptr;
  int transpose_w = 0;
  int transpose_x = 0;
  int element_type = 0;
  int output_type = 0;

 private:
  explicit LtDescription(const api::HipblasLt& lt) : lt_(&lt) {}

  const api::HipblasLt* lt_ = nullptr;
};

/// The library's code for a type; −1 where it has none that gemmtune uses.
int lt_type(DataType type);

/// A solution that supports a problem.
struct Solution {
  int index = 0;
  std::string name;  // Tensile's
  api::LtAlgorithm algorithm{};
  std::size_t workspace_bytes = 0;
};

Config config_of(const Solution& solution, const std::string& build);

/// What AITER's callers give the library at most.
inline constexpr std::size_t workspace_limit = std::size_t{256} << 20;

/// What the library proposes, its first choice first; empty where it has nothing.
std::vector<Solution> proposed_solutions(const api::HipblasLt& lt, api::LtHandle handle,
                                         const LtDescription& problem);
/// All that support the problem, in the library's order, as gradlib asks. Takes seconds.
std::vector<Solution> all_solutions(const api::HipblasLt& lt, api::LtHandle handle,
                                    const LtDescription& problem);
/// The solution of an index; `unsupported` if there is none in this build or it does not do the problem.
Result<Solution> solution_of(const api::HipblasLt& lt, api::LtHandle handle, const LtDescription& problem,
                             int index);

}  // namespace gemmtune::hip
