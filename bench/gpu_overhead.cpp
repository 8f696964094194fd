// gpu_overhead [DEVICE]
//
// What a call costs the host on a GPU, and what compiling a kernel takes; one JSON object on stdout. Times of
// calls are of enqueueing alone: bursts that the driver's queue holds, the C function and the kernel itself
// in turns, medians over the bursts. Kernels are compiled from nothing, one after another. Without a GPU it
// ends with exit code 2 and says why.
#include <gemmtune/c.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "backends/device_request.h"
#include "base/clock.h"
#include "base/environment.h"
#include "capi/c_support.h"
#include "measure/statistics.h"

namespace {

using namespace gemmtune;
using Json = nlohmann::ordered_json;

constexpr int burst = 100;  // launches; the driver queues about a thousand
constexpr int bursts = 200;
constexpr std::size_t kernels_to_compile = 24;  // of each family and problem

int fail(const std::string& text) {
  std::fprintf(stderr, "gpu_overhead: %s\n", text.c_str());
  return 2;
}

Problem dense(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = default_problem(Operation::a16w16);
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

/// Adds to `times` the nanoseconds of host time that a call of `run` takes, over one burst.
template <typename Run>
void burst_nanoseconds(Device& device, Run&& run, std::vector<double>& times) {
  const double begin = steady_seconds();
  for (int i = 0; i < burst; ++i) run();
  times.push_back((steady_seconds() - begin) / burst * 1e9);
  (void)device.synchronize();
}

/// A small plan through the C function and its kernel alone. Empty where a step failed; then `why` says it.
Json measure_calls(Device& device, const std::string& name, std::string& why) {
  const Problem problem = dense(16, 256, 256);
  gemmtune_context_options options{};
  options.size = sizeof options;
  const gemmtune_tuned_files none{GEMMTUNE_A16W16, "/dev/null/none.csv"};  // no tuned file: the fallback
  options.tuned_files = &none;
  options.tuned_file_count = 1;
  options.backend = "cuda";
  options.device = name.c_str();
  gemmtune_context* context = nullptr;
  gemmtune_plan* plan = nullptr;
  gemmtune_problem asked{};
  asked.size = sizeof asked;
  asked.x_type = GEMMTUNE_BF16;
  asked.m = problem.m;
  asked.n = problem.n;
  asked.k = problem.k;
  if (gemmtune_context_create(&options, &context) != GEMMTUNE_OK ||
      gemmtune_plan_create(context, &asked, &plan) != GEMMTUNE_OK) {
    why = gemmtune_last_error();
    gemmtune_context_destroy(context);
    return {};
  }
  const Plan& native = *c::plan_of_c(plan);
  auto x = device.allocate(16 * 256 * 2, Placement::plain);
  auto w = device.allocate(256 * 256 * 2, Placement::plain);
  auto y = device.allocate(16 * 256 * 2, Placement::plain);
  auto workspace = device.allocate(native.workspace_bytes() + 64, Placement::plain);
  Json json;
  if (x.ok() && w.ok() && y.ok() && workspace.ok()) {
    for (const auto* buffer : {&*x, &*w, &*y, &*workspace})
      (void)device.fill((*buffer)->data(), 0, (*buffer)->bytes());
    Operands direct;
    direct.x = (*x)->data();
    direct.w = (*w)->data();
    direct.y = (*y)->data();
    direct.ldx = direct.ldy = 256;
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = direct.x;
    operands.w = direct.w;
    operands.y = (*y)->data();
    void* space = (*workspace)->data();
    std::vector<double> of_plan;
    std::vector<double> of_kernel;
    bool ok = true;
    for (int i = 0; i < bursts; ++i) {
      burst_nanoseconds(
          device, [&] { ok = native.kernel()->run(direct, space, {}).ok() && ok; }, of_kernel);
      burst_nanoseconds(
          device, [&] { ok = gemmtune_plan_run(plan, &operands, space, nullptr) == GEMMTUNE_OK && ok; },
          of_plan);
    }
    if (!ok) why = "a launch failed";
    json = {{"kernel", native.account().kernel_name},
            {"raw_launch_ns", median(of_kernel)},
            {"plan_run_ns", median(of_plan)},
            {"overhead_ns", median(of_plan) - median(of_kernel)}};
  } else {
    why = "no device memory";
  }
  gemmtune_plan_release(plan);
  gemmtune_context_destroy(context);
  return json;
}

/// Builds kernels that are compiled at run time, with no cache on disk. A kernel whose source was compiled
/// already takes microseconds and is not counted.
Json measure_compiles(const Device& device) {
  std::vector<double> all;
  Json json;
  json["families"] = Json::object();
  for (const KernelFamily* family : device.families()) {
    std::vector<double> times;
    std::string slowest;
    for (const Problem& problem : {dense(16, 1280, 8192), dense(256, 7168, 2048), dense(4096, 7168, 2048)}) {
      if (!family->accepts(problem).ok()) continue;
      std::vector<Config> configs = family->space(problem).enumerate();
      const std::size_t stride = std::max<std::size_t>(1, configs.size() / kernels_to_compile);
      for (std::size_t i = 0; i < configs.size(); i += stride) {
        const double begin = steady_seconds();
        const auto kernel = family->build(problem, configs[i]);
        const double seconds = steady_seconds() - begin;
        if (!kernel.ok() || seconds < 0.02) continue;
        if (times.empty() || seconds > *std::max_element(times.begin(), times.end()))
          slowest = configs[i].text();
        times.push_back(seconds);
      }
    }
    if (times.empty() || family->name() == "cublaslt") continue;
    all.insert(all.end(), times.begin(), times.end());
    json["families"][std::string(family->name())] = {
        {"kernels", times.size()},
        {"median_seconds", median(times)},
        {"max_seconds", *std::max_element(times.begin(), times.end())},
        {"slowest", slowest}};
  }
  if (!all.empty()) json["median_seconds"] = median(all);
  return json;
}

}  // namespace

int main(int count, char** words) {
  const auto request = device_request({.text = count > 1 ? words[1] : "cuda:0"}, read_environment());
  if (!request.ok()) return fail(request.message());
  auto device = open_device("cuda", *request);
  if (!device.ok()) return fail(device.message());
  Json json = {{"device", (*device)->info().model}, {"gfx", (*device)->info().gfx}};
  std::string why;
  json["call"] = measure_calls(**device, request->text, why);
  if (!why.empty()) return fail(why);
  json["compile"] = measure_compiles(**device);
  json["observed"] = (*device)->observe();
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}
