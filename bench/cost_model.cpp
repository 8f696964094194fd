// cost_model FAMILY CARD ROWS.csv < CONSTANTS
//
// What a family's cost model says of measured rows (bench/cost_rows.py) with given constants; run by bench/fit.py. Prints the constants for the card
// (h200 or h100) as "name=value …". Each line of that form on standard input sets those that it names, and is answered by a line with the
// prediction of each row, in microseconds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/moe_decode/moe_decode_cost.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_cost.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/skinny/skinny_cost.h"
#include "backends/cuda/families/wgmma/wgmma_cost.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_cost.h"
#include "candidates/config.h"
#include "paper_runtime.h"

namespace gemmtune {
namespace {

struct Row {
  Problem problem;
  Config config;
};

/// The rows of a file whose kernels are of the family.
Result<std::vector<Row>> read_rows(const std::string& path, const KernelFamily& family) {
  std::ifstream file(path);
  if (!file) return Status::invalid("{}: expected a file of measured rows", path);
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::size_t comma = line.find(',');
    const auto problem = parse_problem(line.substr(0, comma));
    if (!problem.ok()) return problem.status();
    const std::string name = line.substr(comma + 1, line.find(',', comma + 1) - comma - 1);
    const auto candidate = parse_kernel_name(name, family.space(*problem).keys());
    if (!candidate.ok()) return candidate.status();
    rows.push_back({*problem, candidate->config});
  }
  return rows;
}

gpu::Limits limits_of(const gpu::Card& card) {
  gpu::Limits limits;
  limits.multiprocessors = 132;
  limits.shared_bytes_per_block = 232448;
  limits.shared_bytes_per_multiprocessor = 233472;
  limits.cache_bytes = 50 << 20;
  limits.memory_bytes_per_microsecond = card.memory_bytes_per_microsecond;
  limits.cycles_per_microsecond = card.cycles_per_microsecond;
  return limits;
}

void print_constants(auto cost) {
  std::vector<std::string> words;
  gpu::visit_constants(cost, [&](const std::string& name, auto& constant) {
    words.push_back(fmt::format("{}={}", name, static_cast<double>(constant)));
  });
  fmt::print("{}\n", fmt::join(words, " "));
}

Status set_constants(const std::string& line, auto& cost) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    bool known = false;
    gpu::visit_constants(cost, [&](const std::string& name, auto& constant) {
      if (name != word.substr(0, equals)) return;
      known = true;
      constant = std::remove_cvref_t<decltype(constant)>{std::atof(word.c_str() + equals + 1)};
    });
    if (equals == std::string::npos || !known)
      return Status::invalid("{}: expected name=value of a constant", word);
  }
  return {};
}

/// `predicted(cost)`: of each row.
template <typename Cost>
Status answer(Cost cost, const std::function<std::vector<double>(const Cost&)>& predicted) {
  print_constants(cost);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    GEMMTUNE_RETURN_IF_ERROR(set_constants(line, cost));
    fmt::print("{:.5g}\n", fmt::join(predicted(cost), " "));
    std::fflush(stdout);
  }
  return {};
}

/// `launch_of(problem, config)` is computed once, `predicted(problem, launch, cost)` for each line.
template <typename Cost>
Status answer_by_launch(const std::vector<Row>& rows, const Cost& cost, auto launch_of, auto predicted) {
  std::vector<decltype(launch_of(rows[0].problem, rows[0].config))> launches;
  for (const Row& row : rows) launches.push_back(launch_of(row.problem, row.config));
  return answer<Cost>(cost, [&](const Cost& of) {
    std::vector<double> microseconds;
    for (std::size_t i = 0; i < rows.size(); ++i)
      microseconds.push_back(predicted(rows[i].problem, launches[i], of));
    return microseconds;
  });
}

/// `make(cost)`: the family with these constants.
template <typename Cost>
Status answer_by_family(const std::vector<Row>& rows, const Cost& cost, auto make) {
  return answer<Cost>(cost, [&](const Cost& of) {
    const std::unique_ptr<KernelFamily> family = make(of);
    std::vector<double> microseconds;
    for (const Row& row : rows)
      microseconds.push_back(family->predicted_microseconds(row.problem, row.config));
    return microseconds;
  });
}

Status run(const std::string& name, const std::string& card, const std::string& path) {
  using namespace cuda;
  if (card != "h100" && card != "h200") return Status::invalid("{}: expected h100 or h200", card);
  PaperRuntime runtime("sm_90a", limits_of(card == "h100" ? h100 : h200));
  const CudaDriver no_driver(api::Driver{}, h200_clusters);
  const HopperLimits limits(runtime.limits(), h200_clusters);
  std::vector<std::unique_ptr<KernelFamily>> families;
  families.push_back(make_wgmma_family(runtime, no_driver));
  families.push_back(make_skinny_family(runtime, no_driver));
  families.push_back(make_mxfp4_family(runtime, no_driver));
  families.push_back(make_mxfp4_skinny_family(runtime, no_driver, limits));
  families.push_back(make_wgmma_moe_family(runtime, no_driver));
  families.push_back(make_moe_decode_family(runtime));
  families.push_back(make_mxfp4_stream_family(runtime, limits));
  const KernelFamily* family = nullptr;
  for (const auto& each : families)
    if (each->name() == name) family = each.get();
  if (family == nullptr) return Status::invalid("{}: expected a family with measured rows", name);
  const auto rows = read_rows(path, *family);
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return Status::invalid("{}: expected rows", path);
  const auto with_limits = [&](auto function) {
    return [&limits, function](const Problem& problem, const Config& config) {
      return function(problem, config, limits);
    };
  };
  const auto priced = [&](auto function) {
    return [&limits, function](const Problem& problem, const auto& launch, const auto& cost) {
      return function(problem, launch, limits, cost);
    };
  };
  if (name == "wgmma")
    return answer_by_launch(*rows, wgmma_cost(limits), with_limits(wgmma_launch_config),
                            priced(predicted_wgmma));
  if (name == "skinny")
    return answer_by_launch(*rows, skinny_cost(limits), with_limits(skinny_launch_config),
                            priced(predicted_skinny));
  if (name == "wgmma_moe")
    return answer_by_launch(*rows, wgmma_moe_cost(limits), with_limits(wgmma_moe_stages),
                            priced(predicted_wgmma_moe));
  if (name == "moe_decode")
    return answer_by_launch(*rows, moe_decode_cost(limits), with_limits(moe_decode_launch),
                            predicted_moe_decode);
  if (name == "mxfp4_stream")
    return answer_by_launch(*rows, stream_cost(limits), with_limits(stream_launches),
                            priced(predicted_stream));
  if (name == "mxfp4")
    return answer_by_family(*rows, mxfp4_cost(limits), [&](const Mxfp4Cost& cost) {
      return make_mxfp4_family(runtime, no_driver, cost);
    });
  return answer_by_family(*rows, mxfp4_skinny_cost(limits), [&](const Mxfp4SkinnyCost& cost) {
    return make_mxfp4_skinny_family(runtime, no_driver, limits, cost);
  });
}

}  // namespace
}  // namespace gemmtune

int main(int count, char** words) {
  if (count != 4) {
    fmt::print(stderr, "usage: cost_model FAMILY CARD ROWS.csv < CONSTANTS\n");
    return 2;
  }
  const gemmtune::Status status = gemmtune::run(words[1], words[2], words[3]);
  if (status.ok()) return 0;
  fmt::print(stderr, "cost_model: {}\n", status.message());
  return 2;
}
