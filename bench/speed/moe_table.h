// Mixtures of experts against separate calls of the library, expert by expert.
#pragma once

#include <functional>

#include <nlohmann/json.hpp>

#include "speed/table.h"

namespace gemmtune::speed {

/// bf16, 128 experts, topk 8, model_dim 2048, inter_dim 768, gated.
struct MoeRow {
  int threads = 1;
  std::int64_t tokens = 0;
  std::string kernel;
  double microseconds = 0;
  double read_microseconds = 0;  // of the weights of the experts that have tokens
  double share = 0;              // read / ours
  double share_spread = 0;
  std::optional<double> over_library;
  double library_spread = 0;
};

/// T = 1, 16, 128.
Status run_mixtures(Device& device, const Plan& plan, const std::function<void(const MoeRow&)>& on_row);

void print_row(const MoeRow& row);
nlohmann::json json_row(const MoeRow& row);

}  // namespace gemmtune::speed
