// What the performance model of our AMD kernels says beside the times of a tuned file: hip_model TABLE.csv [ROWS]. A line for each of the first
// ROWS rows (default: all) of gfx90a or gfx942 that mfma takes: the file's time, the model's of the best config, which unit bounds it, and the
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
#include "backends/hip/families/mfma/mfma.h"
#include "backends/hip/families/mfma/mfma_launch_config.h"
#include "backends/hip/families/skinny/skinny.h"
#include "formats/aiter/tuned_csv.h"

namespace gemmtune {
namespace {

/// A device of which only the limits are known.
class PaperRuntime final : public gpu::Runtime {
 public:
  PaperRuntime(std::string architecture, int units) : architecture_(std::move(architecture)) {
    limits_.multiprocessors = units;
    limits_.registers_per_thread = 512;
    limits_.shared_bytes_per_block = limits_.shared_bytes_per_multiprocessor = 65536;
    limits_.cache_bytes = 4 << 20;
  }
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source&) override {
    return Status::unsupported("no compiler");
  }

 private:
  std::string architecture_;
  gpu::Limits limits_;
};

struct Best {
  double microseconds = std::numeric_limits<double>::infinity();
  Config config;
};

Best best_of(const KernelFamily& family, const Problem& problem) {
  Best best;
  if (!family.accepts(problem).ok()) return best;
  for (const Config& config : family.space(problem).enumerate()) {
    const double microseconds = family.predicted_microseconds(problem, config);
    if (microseconds < best.microseconds) best = {microseconds, config};
  }
  return best;
}

int run(const std::string& path, long rows) {
  const auto file = read_tuned_csv(path);
  if (!file.ok()) {
    fmt::print(stderr, "hip_model: {}\n", file.message());
    return 2;
  }
  fmt::print("{:<8} {:>5} {:>4} {:>6} {:>7} {:>7}  {:<12} {:>9} {:>9} {:>6}  {:<8} {}\n", "gfx", "cus", "B",
             "M", "N", "K", "type", "file us", "model us", "ratio", "bound", "config of the model's best");
  struct Families {
    std::unique_ptr<PaperRuntime> runtime;
    std::unique_ptr<KernelFamily> mfma, skinny;
  };
  std::map<std::pair<std::string, int>, Families> devices;
  double logarithms = 0;
  long printed = 0;
  long left_out = 0;
  for (const TunedEntry& row : file->entries) {
    if (rows > 0 && printed == rows) break;
    const bool has_time = std::isfinite(row.us) && row.us > 0;
    if (!hip::has_mfma(row.gfx) || row.cu_num <= 0 || !has_time) {
      ++left_out;
      continue;
    }
    Families& device = devices[{row.gfx, row.cu_num}];
    if (!device.runtime) {
      device.runtime = std::make_unique<PaperRuntime>(row.gfx, row.cu_num);
      device.mfma = hip::make_mfma_family(*device.runtime);
      device.skinny = hip::make_skinny_family(*device.runtime);
    }
    const Best mfma = best_of(*device.mfma, row.problem);
    const Best skinny = best_of(*device.skinny, row.problem);
    const bool few_rows = skinny.microseconds < mfma.microseconds;
    const Best& best = few_rows ? skinny : mfma;
    if (std::isinf(best.microseconds)) {
      ++left_out;
      continue;
    }
    std::string bound = "memory";
    if (!few_rows) {
      const auto launch = hip::mfma_launch_config(row.problem, best.config, row.gfx);
      bound =
          hip::model_of(row.problem, launch, hip::compute_unit(row.gfx, device.runtime->limits())).bound();
    }
    fmt::print("{:<8} {:>5} {:>4} {:>6} {:>7} {:>7}  {:<12} {:>9.2f} {:>9.2f} {:>6.2f}  {:<8} {}_{}\n",
               row.gfx, row.cu_num, row.problem.batch, row.problem.m, row.problem.n, row.problem.k,
               to_string(row.problem.x_type), row.us, best.microseconds, row.us / best.microseconds, bound,
               few_rows ? "skinny" : "mfma", best.config.text());
    logarithms += std::log(row.us / best.microseconds);
    ++printed;
  }
  if (printed > 0)
    fmt::print("{} rows, geometric mean of file over model: {:.2f}\n", printed,
               std::exp(logarithms / static_cast<double>(printed)));
  if (left_out > 0)
    fmt::print("{} rows left out: another architecture, no time, or operands that neither family takes\n",
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
