// A small device for dispatch's tests: right results by plain loops, families that differ in what they take.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "numbers/bfloat16.h"

namespace gemmtune::test {

/// Counts what the fake device did; shared with the test, may outlive the device.
struct FakeLog {
  std::atomic<int> builds{0};
  std::atomic<int> spaces{0};  // that families made
  std::atomic<int> runs{0};
  std::atomic<int> build_milliseconds{0};  // how long a build takes, so that others ask meanwhile
};

class FakeKernel final : public Kernel {
 public:
  FakeKernel(const Problem& problem, WeightLayout layout, std::size_t workspace, std::shared_ptr<FakeLog> log)
      : problem_(problem), layout_(layout), workspace_(workspace), log_(std::move(log)) {}
  std::size_t workspace_bytes() const override { return workspace_; }
  WeightLayout weight_layout() const override { return layout_; }
  Status run(const Operands& operands, void* workspace, Stream) const override {
    if (workspace_ > 0) std::memset(workspace, 0, workspace_);
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      for (std::int64_t column = 0; column < problem_.n; ++column) {
        double sum = operands.bias == nullptr ? 0 : read(operands.bias, column, problem_.y_type);
        for (std::int64_t step = 0; step < problem_.k; ++step) {
          sum += read(operands.x, row * operands.ldx + step, problem_.x_type) *
                 read(operands.w, weight_index(column, step), problem_.w_type);
        }
        write(operands.y, row * operands.ldy + column, static_cast<float>(sum));
      }
    }
    log_->runs.fetch_add(1);
    return {};
  }

 private:
  static double read(const void* data, std::int64_t index, DataType type) {
    if (type == DataType::f32) return static_cast<const float*>(data)[index];
    return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
  }
  void write(void* data, std::int64_t index, float value) const {
    if (problem_.y_type == DataType::f32) {
      static_cast<float*>(data)[index] = value;
    } else {
      static_cast<std::uint16_t*>(data)[index] = f32_to_bf16(value);
    }
  }
  std::int64_t weight_index(std::int64_t column, std::int64_t step) const {
    if (problem_.weight_layout == WeightLayout::plain) return column * problem_.k + step;
    const std::int64_t pair = problem_.w_type == DataType::bf16 ? 2 : 1;
    const Panel16 shape{problem_.n, problem_.k, bits(problem_.w_type) / 8, pair};
    return column / 16 * shape.padded_k() * 16 + step / pair * 16 * pair + column % 16 * pair + step % pair;
  }

  Problem problem_;
  WeightLayout layout_;
  std::size_t workspace_;
  std::shared_ptr<FakeLog> log_;
};

/// One parameter `a` of 1 and 2, which says the order of sums. `packed`: the layout it also reads; `max_m`: above it refuses.
struct FakeFamilyTraits {
  std::string name;
  std::optional<WeightLayout> packed;
  std::int64_t max_m = max_dimension;
  std::size_t workspace = 0;
  bool takes_any_layout = false;  // accepts what its kernels then do not read
  bool promises_order = true;
};

class FakeFamily final : public LeafFamily {
 public:
  FakeFamily(FakeFamilyTraits traits, std::shared_ptr<FakeLog> log)
      : traits_(std::move(traits)), log_(std::move(log)) {}
  std::string_view name() const override { return traits_.name; }
  int tie_rank() const override { return 0; }
  Status accepts(const Problem& problem) const override {
    if (problem.m > traits_.max_m) return Status::unsupported("M above {}", traits_.max_m);
    const bool packed_here = problem.weight_layout == WeightLayout::any
                                 ? traits_.packed.has_value()
                                 : traits_.packed == problem.weight_layout;
    if (problem.weight_layout != WeightLayout::plain && !packed_here && !traits_.takes_any_layout) {
      return Status::unsupported("weight layout {}", to_string(problem.weight_layout));
    }
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return traits_.packed; }
  Space space(const Problem&) const override {
    log_->spaces.fetch_add(1);
    Space space;
    space.add(Parameter{"a", {"1", "2"}, "1", "which"});
    space.add(Parameter{"pdl", {"0", "1"}, "0", "launched early"});
    return space;
  }
  std::string sum_order(const Problem&, const Config& config) const override {
    return traits_.promises_order ? "order " + std::string(config.word("a")) : std::string();
  }
  Config default_config(const Problem&) const override {
    Config config;
    config.set("a", std::int64_t{1});
    return config;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config&) const override {
    log_->builds.fetch_add(1);
    if (const int wait = log_->build_milliseconds; wait > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    }
    const auto layout = is_packed(problem) ? *traits_.packed : WeightLayout::plain;
    return std::unique_ptr<Kernel>(std::make_unique<FakeKernel>(problem, layout, traits_.workspace, log_));
  }

 private:
  FakeFamilyTraits traits_;
  std::shared_ptr<FakeLog> log_;
};

class FakeBuffer final : public Buffer {
 public:
  explicit FakeBuffer(std::size_t bytes)
      : bytes_(bytes), data_(std::aligned_alloc(64, (bytes + 63) / 64 * 64)) {}
  ~FakeBuffer() override { std::free(data_); }
  FakeBuffer(const FakeBuffer&) = delete;
  FakeBuffer& operator=(const FakeBuffer&) = delete;
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Families: alpha (plain and panel16, 128 bytes of workspace), beta (plain, M ≤ 8, without a promise), gamma (reads the onednn
/// layout only), safe (the fallback, all layouts of ours).
class FakeDevice : public LeafDevice {
 public:
  explicit FakeDevice(std::shared_ptr<FakeLog> log = std::make_shared<FakeLog>()) {
    info_.backend = "fake";
    info_.name = "fake:0";
    info_.model = "Fake 1";
    info_.gfx = "x86-fake";
    info_.cu_num = 2;
    info_.libraries.resize(1);
    info_.libraries[0].name = "fastlib";
    info_.libraries[0].version = "2.6.3";
    const FakeFamilyTraits traits[] = {{"alpha", WeightLayout::panel16, max_dimension, 128, false},
                                       {"beta", std::nullopt, 8, 0, false, false},
                                       {"gamma", WeightLayout::onednn, max_dimension, 0, true},
                                       {"safe", WeightLayout::panel16, max_dimension, 0, false}};
    for (const FakeFamilyTraits& one : traits) families_.push_back(std::make_unique<FakeFamily>(one, log));
    for (const auto& family : families_) listed_.push_back(family.get());
  }
  DeviceInfo& change_info() { return info_; }

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return listed_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement) override {
    return std::unique_ptr<Buffer>(std::make_unique<FakeBuffer>(bytes));
  }
  Status copy_in(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status copy_out(void* to, const void* from, std::size_t bytes) override { return copy_in(to, from, bytes); }
  Status fill(void* to, int byte, std::size_t bytes) override {
    std::memset(to, byte, bytes);
    return {};
  }
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }
  std::map<std::string, double> observe() override { return {}; }
  void compile_ahead(const Problem&, std::span<const Candidate>) override {}
  bool times_single_calls() const override { return false; }
  void quiesce(std::string_view) override {}
  void look_for_threads() override { info_.team = "openmp"; }
  bool is_capturing(Stream) const override { return false; }
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override {
    if (layout != WeightLayout::panel16) return Status::unsupported("weight layout {}", to_string(layout));
    return static_cast<std::size_t>(panel(problem).bytes());
  }
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override {
    if (layout != WeightLayout::panel16) return Status::unsupported("weight layout {}", to_string(layout));
    pack_panel16(panel(problem), plain, packed);
    return {};
  }
  Result<double> sample(const SampleRequest&) override { return Status::unsupported("no clock"); }
  std::size_t last_level_cache_bytes() override { return 1 << 20; }
  std::size_t free_memory_bytes() override { return 1 << 30; }
  Result<Candidate> baseline(const Problem& problem) const override { return fallback(problem); }
  Result<Candidate> fallback(const Problem& problem) const override {
    const KernelFamily* family = find_family("safe");
    GEMMTUNE_RETURN_IF_ERROR(family->accepts(problem));
    return Candidate{"safe", 1, family->default_config(problem)};
  }

 private:
  static Panel16 panel(const Problem& problem) {
    return {problem.n, problem.k, bits(problem.w_type) / 8, problem.w_type == DataType::bf16 ? 2 : 1};
  }

  DeviceInfo info_;
  std::vector<std::unique_ptr<FakeFamily>> families_;
  std::vector<const KernelFamily*> listed_;
};

}  // namespace gemmtune::test
