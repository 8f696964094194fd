#include "evaluate/in_process/rank_sums.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "evaluate/in_process/kernel_verifier.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

using Sums = std::vector<float>;  // [M, N]

constexpr int rank_counts[] = {2, 4, 8};

/// Columns [first, first + count) of rows of `columns` elements.
std::vector<std::byte> columns_of(const std::vector<std::byte>& rows, DataType type, std::int64_t columns,
                                  std::int64_t first, std::int64_t count) {
  const auto stride = static_cast<std::size_t>(bytes_of(type, columns));
  const auto begin = static_cast<std::size_t>(bytes_of(type, first));
  const auto size = static_cast<std::size_t>(bytes_of(type, count));
  std::vector<std::byte> chosen;
  chosen.reserve(rows.size() / stride * size);
  for (std::size_t row = begin; row < rows.size(); row += stride) {
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>(row);
    chosen.insert(chosen.end(), from, from + static_cast<std::ptrdiff_t>(size));
  }
  return chosen;
}

class RankChecker {
 public:
  RankChecker(Device& device, const Problem& whole, const Candidate& candidate, HostOperands operands)
      : device_(device), whole_(whole), candidate_(candidate), operands_(std::move(operands)) {}

  Result<RankSums> check() const {
    GEMMTUNE_TRY(const auto whole, sums_of(whole_, operands_));
    RankSums found;
    for (const int ranks : rank_counts) {
      GEMMTUNE_RETURN_IF_ERROR(check_rows_of_w(whole, ranks, found));
      GEMMTUNE_RETURN_IF_ERROR(check_segments_of_k(whole, ranks, found));
    }
    return found;
  }

 private:
  bool is_taken(const Problem& part) const {
    const KernelFamily& family = *device_.find_family(candidate_.family);
    const auto checked = device_.checked(candidate_, part);
    return checked.ok() && family.sum_order(part, checked->config) ==
                               family.sum_order(whole_, device_.checked(candidate_, whole_)->config);
  }

  Status check_rows_of_w(const Sums& whole, int ranks, RankSums& found) const {
    Problem part = whole_;
    part.n = whole_.n / ranks;
    if (whole_.n % ranks != 0 || !is_taken(part)) return {};
    const auto part_bytes = operands_.w.size() / static_cast<std::size_t>(ranks);
    Sums together(whole.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto from = operands_.w.begin() + static_cast<std::ptrdiff_t>(part_bytes) * rank;
      HostOperands operands;
      operands.x = operands_.x;
      operands.w = {from, from + static_cast<std::ptrdiff_t>(part_bytes)};
      GEMMTUNE_TRY(const auto sums, sums_of(part, operands));
      for (std::int64_t row = 0; row < part.m; ++row)
        std::memcpy(&together[static_cast<std::size_t>(row * whole_.n + rank * part.n)],
                    &sums[static_cast<std::size_t>(row * part.n)],
                    static_cast<std::size_t>(part.n) * sizeof(float));
    }
    conclude(whole, together, ranks, "N", found.by_n, found);
    return {};
  }

  Status check_segments_of_k(const Sums& whole, int ranks, RankSums& found) const {
    Problem part = whole_;
    part.k = whole_.k / ranks;
    if (whole_.k % ranks != 0 || !is_taken(part)) return {};
    std::vector<Sums> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      HostOperands operands;
      operands.x = columns_of(operands_.x, whole_.x_type, whole_.k, rank * part.k, part.k);
      operands.w = columns_of(operands_.w, whole_.w_type, whole_.k, rank * part.k, part.k);
      GEMMTUNE_TRY(auto sums, sums_of(part, operands));
      parts.push_back(std::move(sums));
    }
    for (std::size_t apart = 1; apart < parts.size(); apart *= 2)
      for (std::size_t rank = 0; rank < parts.size(); rank += 2 * apart)
        for (std::size_t i = 0; i < whole.size(); ++i) parts[rank][i] += parts[rank + apart][i];
    conclude(whole, parts[0], ranks, "K", found.by_k, found);
    return {};
  }

  void conclude(const Sums& whole, const Sums& together, int ranks, std::string_view side,
                std::vector<int>& equal, RankSums& found) const {
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const auto expected = std::bit_cast<std::uint32_t>(whole[i]);
      const auto sum = std::bit_cast<std::uint32_t>(together[i]);
      if (sum == expected) continue;
      const auto n = static_cast<std::size_t>(whole_.n);
      if (found.difference.empty())
        found.difference =
            fmt::format("{} ranks by {}: M = {}, row {}, element {} is {:#x}, and {:#x} of the whole weight",
                        ranks, side, whole_.m, i / n, i % n, sum, expected);
      return;
    }
    equal.push_back(ranks);
  }

  Result<Sums> sums_of(const Problem& problem, const HostOperands& host) const {
    GEMMTUNE_TRY(auto kernel, device_.build(candidate_, problem));
    GEMMTUNE_TRY(auto placed, DeviceOperands::make(device_, problem, Placement::plain));
    GEMMTUNE_RETURN_IF_ERROR(placed.fill(host));
    GEMMTUNE_TRY(auto operands, placed.operands(kernel->weight_layout()));
    Sums sums(static_cast<std::size_t>(problem.m * problem.n));
    const std::size_t bytes = sums.size() * sizeof(float);
    GEMMTUNE_TRY(const auto y, device_.allocate(bytes, Placement::plain));
    std::unique_ptr<Buffer> workspace;
    if (const std::size_t needed = kernel->workspace_bytes(); needed > 0) {
      GEMMTUNE_TRY(workspace, device_.allocate(needed, Placement::plain));
    }
    operands.y = y->data();
    operands.ldy = problem.n;
    GEMMTUNE_RETURN_IF_ERROR(kernel->run(operands, workspace == nullptr ? nullptr : workspace->data(), {}));
    GEMMTUNE_RETURN_IF_ERROR(device_.synchronize());
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(sums.data(), y->data(), bytes));
    return sums;
  }

  Device& device_;
  Problem whole_;
  const Candidate& candidate_;
  HostOperands operands_;
};

}  // namespace

Result<RankSums> check_ranks(Device& device, Problem problem, const Candidate& candidate, std::uint64_t seed,
                             int threads) {
  if (problem.x_order != Order::row_major || problem.w_order != Order::row_major)
    return Status::unsupported("parts of column-major operands are not checked");
  problem.y_type = DataType::f32;
  problem.bias = false;
  if (const auto checked = device.checked(candidate, problem); !checked.ok()) return checked.status();
  GEMMTUNE_TRY(auto operands, make_inputs(problem, seed, threads));
  return RankChecker(device, problem, candidate, std::move(operands)).check();
}

}  // namespace gemmtune
