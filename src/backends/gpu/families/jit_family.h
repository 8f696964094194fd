// A family whose kernels are compiled at run time, as far as all of them are the same. A family itself says what a config means for a
// problem (its launch config), which rules that has, what it costs, and which programs run it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/gpu/families/launch_space.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// One program of a kernel.
struct Part {
  Source source;
  std::int64_t shared_bytes = 0;  // dynamic shared memory that its launches ask for
};
using Programs = std::vector<std::shared_ptr<Program>>;  // one for each part

/// What a family is for all problems.
struct FamilyIdentity {
  std::string_view name;
  int tie_rank = 0;
  std::optional<WeightLayout> packed = {};  // KernelFamily::packed_layout() of every problem
  int revision = 1;
};

/// A kernel of a JitFamily; of a plain weight and without a workspace unless it says otherwise.
template <typename Launch>
class JitKernel : public Kernel {
 public:
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

 protected:
  JitKernel(Programs programs, const Problem& problem, const Launch& launch)
      : programs_(std::move(programs)), problem_(problem), launch_(launch) {}

  /// Enqueues a program, which takes its arguments as one struct.
  template <typename Arguments>
  Status enqueue(std::size_t program, const LaunchShape& shape, Arguments& values, Stream stream) const {
    void* arguments[] = {&values};
    return programs_[program]->launch(shape, arguments, stream);
  }

  Programs programs_;
  Problem problem_;
  Launch launch_;
};

template <typename Launch>
class JitFamily : public CompiledFamily {
 public:
  /// The runtime must outlive the family and its kernels.
  JitFamily(Runtime& runtime, const FamilyIdentity& identity) : runtime_(runtime), identity_(identity) {}

  std::string_view name() const final { return identity_.name; }
  int revision() const final { return identity_.revision; }
  std::string identity() const final {
    return fmt::format("{} r{} source {}", name(), revision(), text_hash(device_text()));
  }
  int tie_rank() const final { return identity_.tie_rank; }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return identity_.packed; }
  std::string_view thread_pool() const final { return "gpu"; }

  Space space(const Problem& problem) const final {
    LaunchSpace<Launch> space(
        problem, [this, problem](const Config& config) { return launch_config(problem, config); });
    fill(space);
    return space.take();
  }
  std::vector<Source> sources(const Problem& problem, const Config& config) const final {
    std::vector<Source> sources;
    for (Part& part : parts(problem, launch_config(problem, config)))
      sources.push_back(std::move(part.source));
    return sources;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const final {
    const Launch launch = launch_config(problem, config);
    Programs programs;
    for (const Part& part : parts(problem, launch)) {
      GEMMTUNE_TRY(auto program, runtime_.load(part.source));
      GEMMTUNE_RETURN_IF_ERROR(program->reserve_shared(static_cast<std::size_t>(part.shared_bytes)));
      programs.push_back(std::move(program));
    }
    return make_kernel(std::move(programs), problem, launch);
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const final {
    return cost(problem, launch_config(problem, config));
  }
  std::int64_t resources(const Problem& problem, const Config& config) const final {
    return resources_of(launch_config(problem, config));
  }

 protected:
  /// What a config means for a problem here; keys that it lacks are at what absence means.
  virtual Launch launch_config(const Problem& problem, const Config& config) const = 0;
  /// Adds the parameters and the rules.
  virtual void fill(LaunchSpace<Launch>& space) const = 0;
  /// predicted_microseconds()
  virtual double cost(const Problem& problem, const Launch& launch) const = 0;
  /// resources()
  virtual std::int64_t resources_of(const Launch& launch) const {
    if constexpr (requires { launch.shared_bytes; }) return launch.shared_bytes;
    return 0;
  }
  virtual std::vector<Part> parts(const Problem& problem, const Launch& launch) const = 0;
  virtual Result<std::unique_ptr<Kernel>> make_kernel(Programs programs, const Problem& problem,
                                                      const Launch& launch) const = 0;
  /// All that the parts' sources are made of, whatever the problem: what identity() is a hash of.
  virtual std::string device_text() const = 0;

  /// Refuses in a search what costs more than `times` as much as the default config. That is computed when the rule is first asked: what
  /// is built needs none.
  void refuse_slow(LaunchSpace<Launch>& space, double times) const {
    struct Slowest {
      std::once_flag once;
      double microseconds = 0;
    };
    space.rule("slow", Rule::search,
               [this, times, slowest = std::make_shared<Slowest>()](const Problem& problem,
                                                                    const Launch& launch) -> std::string {
                 std::call_once(slowest->once, [&] {
                   slowest->microseconds = times * predicted_microseconds(problem, default_config(problem));
                 });
                 return cost(problem, launch) <= slowest->microseconds
                            ? ""
                            : "the cost model says much slower than the default";
               });
  }

  Runtime& runtime() const { return runtime_; }

 private:
  Runtime& runtime_;
  FamilyIdentity identity_;
};

}  // namespace gemmtune::gpu
