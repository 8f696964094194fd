// What the performance model of our AMD kernels says beside the times of a tuned file: hip_model TABLE.csv [ROWS]. A line for each of the first
// ROWS rows (default: all) of gfx90a, gfx942 or gfx950 that mfma or mfma_moe takes: the file's time, the model's of the best config, which unit bounds it, and the
// config. The model is no measurement (docs/hip_model.md).
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/mfma/mfma_launch_config.h"
#include "backends/hip/families/mfma_moe/mfma_moe_launch_config.h"
#include "backends/hip/families/own_families.h"
#include "formats/aiter/tuned_csv.h"
#include "paper_runtime.h"

namespace gemmtune {
namespace {

gpu::Limits limits_of(const std::string& architecture, int units) {
  gpu::Limits limits;
  limits.multiprocessors = units;
  limits.registers_per_thread = 512;
  limits.shared_bytes_per_block = architecture == "gfx950" ? 163840 : 65536;
  limits.shared_bytes_per_multiprocessor = limits.shared_bytes_per_block;
  limits.cache_bytes = 4 << 20;
  return limits;
}

struct Best {
  const KernelFamily* family = nullptr;
  double microseconds = std::numeric_limits<double>::infinity();
  Config config;
};

/// The unit that the model says its kernels wait for, of a mixture's stages both.
std::string bound_of(const Best& best, const Problem& problem, const gpu::Runtime& runtime) {
  const hip::ComputeUnit unit = hip::compute_unit(runtime.architecture(), runtime.limits());
  if (best.family->name() == "mfma") {
    const auto launch = hip::mfma_launch_config(problem, best.config, runtime.architecture());
    return std::string(hip::model_of(problem, launch, unit).bound());
  }
  if (best.family->name() != "mfma_moe") return "memory";
  std::string bounds;
  for (const hip::MfmaMoeStage& stage : hip::mfma_moe_stages(problem, best.config, runtime.architecture()))
    bounds +=
        fmt::format("{}{}", bounds.empty() ? "" : ",", hip::model_of(stage.expert, stage.tile, unit).bound());
  return bounds;
}

Best best_of(const KernelFamily& family, const Problem& problem) {
  Best best;
  if (!family.accepts(problem).ok()) return best;
  for (const Config& config : family.space(problem).enumerate()) {
    const double microseconds = family.predicted_microseconds(problem, config);
    if (microseconds < best.microseconds) best = {&family, microseconds, config};
  }
  return best;
}

int run(const std::string& path, long rows) {
  const auto file = read_tuned_csv(path);
  if (!file.ok()) {
    fmt::print(stderr, "hip_model: {}\n", file.message());
    return 2;
  }
  fmt::print("{:<8} {:>5} {:>4} {:>6} {:>7} {:>7}  {:<12} {:>9} {:>9} {:>6}  {:<13} {}\n", "gfx", "cus", "B",
             "M", "N", "K", "type", "file us", "model us", "ratio", "bound", "config of the model's best");
  struct Families {
    std::unique_ptr<PaperRuntime> runtime;
    std::vector<std::unique_ptr<KernelFamily>> families;
  };
  std::map<std::pair<std::string, int>, Families> devices;
  double logarithms = 0;
  long printed = 0;
  long left_out = 0;
  for (const TunedEntry& row : file->entries) {
    if (rows > 0 && printed == rows) break;
    const std::string gfx(table_gfx(row));
    const bool has_time = std::isfinite(row.us) && row.us > 0;
    if (!hip::has_mfma(gfx) || row.cu_num <= 0 || !has_time) {
      ++left_out;
      continue;
    }
    Families& device = devices[{gfx, row.cu_num}];
    if (!device.runtime) {
      device.runtime = std::make_unique<PaperRuntime>(gfx, limits_of(gfx, row.cu_num));
      device.families.push_back(hip::make_mfma_family(*device.runtime));
      device.families.push_back(hip::make_skinny_family(*device.runtime));
      device.families.push_back(hip::make_mfma_moe_family(*device.runtime));
    }
    Best best;
    for (const auto& family : device.families)
      if (const Best found = best_of(*family, row.problem); found.microseconds < best.microseconds)
        best = found;
    if (std::isinf(best.microseconds)) {
      ++left_out;
      continue;
    }
    fmt::print("{:<8} {:>5} {:>4} {:>6} {:>7} {:>7}  {:<12} {:>9.2f} {:>9.2f} {:>6.2f}  {:<13} {}_{}\n", gfx,
               row.cu_num, row.problem.batch, row.problem.m, row.problem.n, row.problem.k,
               to_string(row.problem.x_type), row.us, best.microseconds, row.us / best.microseconds,
               bound_of(best, row.problem, *device.runtime), best.family->name(), best.config.text());
    logarithms += std::log(row.us / best.microseconds);
    ++printed;
  }
  if (printed > 0)
    fmt::print("{} rows, geometric mean of file over model: {:.2f}\n", printed,
               std::exp(logarithms / static_cast<double>(printed)));
  if (left_out > 0)
    fmt::print("{} rows left out: another architecture, no time, or operands that no family takes\n",
               left_out);
  return 0;
}

}  // namespace
}  // namespace gemmtune

int main(int count, char** words) {
  if (count < 2 || count > 3) {
    fmt::print(stderr, "usage: hip_model TABLE.csv [ROWS]\n");
    return 2;
  }
  return gemmtune::run(words[1], count == 3 ? std::atol(words[2]) : 0);
}
