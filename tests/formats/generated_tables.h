// Files of every format from a seed, and damage to them: input of the property test.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "problem/problem.h"

namespace gemmtune::test {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  template <typename Value>
  const Value& pick(const std::vector<Value>& values) {
    return values[below(values.size())];
  }

  /// A tuned CSV of the operation: few sizes and kernels, so that keys collide and winners repeat; tags,
  /// ranges, unknown columns, failed times, many digits.
  std::string tuned_table(OperationForm operation);
  /// Rows whose kernels are configurations of Triton, of tune_gemm or hipBLASLt's.
  std::string convertible_table();
  std::string triton_config();
  std::string tune_gemm_results();
  std::string hipblaslt_table();
  std::string tunableop_results();
  std::string shape_list();
  /// Some bytes, cells or lines removed, doubled or replaced.
  std::string damaged(std::string text);

 private:
  std::string cell(const std::string& column, OperationForm operation);

  std::mt19937_64 random_;
};

}  // namespace gemmtune::test
