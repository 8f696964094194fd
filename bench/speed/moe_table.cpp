#include "speed/moe_table.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "numbers/bfloat16.h"
#include "problem/operands.h"
#include "speed/reading.h"
#include "speed/separate_experts.h"

namespace gemmtune::speed {
namespace {

constexpr std::int64_t token_counts[] = {1, 16, 128};
constexpr std::size_t route_sets = 16;
constexpr std::size_t pattern_elements = 65536;

Problem mixture_of(std::int64_t tokens) {
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = tokens;
  problem.n = 768;
  problem.k = 2048;
  problem.x_type = problem.w_type = problem.y_type = DataType::bf16;
  problem.moe = {.experts = 128,
                 .topk = 8,
                 .activation = Activation::silu,
                 .quant_type = QuantType::none,
                 .gated = true};
  return problem;
}

/// Repeats a pattern of small random bf16 values: as good as fresh ones for time, and filled at the speed of
/// memory.
void fill_bf16(void* to, std::size_t bytes, float scale) {
  std::vector<std::uint16_t> pattern(pattern_elements);
  Random random(3);
  for (auto& element : pattern) element = f32_to_bf16((static_cast<float>(random.uniform()) - 0.5F) * scale);
  for (std::size_t at = 0; at < bytes; at += pattern_elements * 2)
    std::memcpy(static_cast<char*>(to) + at, pattern.data(), std::min(pattern_elements * 2, bytes - at));
}

std::vector<std::int32_t> routes_of(const Problem& problem, Random& random) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> experts(static_cast<std::size_t>(problem.moe.experts));
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<std::int32_t>(i);
  for (std::int64_t token = 0; token < problem.m; ++token)
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(problem.moe.topk); ++slot) {
      std::swap(experts[slot], experts[slot + random.below(experts.size() - slot)]);
      ids.push_back(experts[slot]);
    }
  return ids;
}

/// Weights of all experts, in memory once (they are far larger than any cache), plain and the library's.
struct Weights {
  std::unique_ptr<Buffer> w1, w2, packed_w1, packed_w2;
};

Result<std::unique_ptr<Buffer>> pack_experts(Device& device, const Problem& expert, const Buffer& plain,
                                             std::int64_t experts) {
  const auto bytes = device.packed_bytes(expert, WeightLayout::onednn);
  if (!bytes.ok()) return bytes.status();
  auto packed = device.allocate(*bytes * static_cast<std::size_t>(experts), Placement::pool);
  if (!packed.ok()) return packed;
  const auto plain_bytes = static_cast<std::size_t>(weight_bytes(expert));
  for (std::size_t i = 0; i < static_cast<std::size_t>(experts); ++i)
    GEMMTUNE_RETURN_IF_ERROR(device.pack_weight(expert, WeightLayout::onednn,
                                                static_cast<const char*>(plain.data()) + i * plain_bytes,
                                                static_cast<char*>((*packed)->data()) + i * *bytes));
  return packed;
}

Result<Weights> make_weights(Device& device) {
  const OperandShapes shapes = operand_shapes(mixture_of(1));
  Weights weights;
  for (const auto& [buffer, bytes] :
       {std::pair{&weights.w1, shapes.w.bytes()}, {&weights.w2, shapes.w2.bytes()}}) {
    auto made = device.allocate(static_cast<std::size_t>(bytes), Placement::pool);
    if (!made.ok()) return made.status();
    *buffer = std::move(*made);
    fill_bf16((*buffer)->data(), static_cast<std::size_t>(bytes), 0.1F);
  }
  const std::int64_t experts = mixture_of(1).moe.experts;
  auto first = pack_experts(device, first_of_expert(mixture_of(1), 1, true), *weights.w1, experts);
  if (first.ok()) weights.packed_w1 = std::move(*first);
  auto second = pack_experts(device, second_of_expert(mixture_of(1), 1, true), *weights.w2, experts);
  if (second.ok()) weights.packed_w2 = std::move(*second);
  return weights;
}

/// Reads what a call's experts have.
class ReadingExperts final : public Kernel {
 public:
  explicit ReadingExperts(const Problem& problem)
      : problem_(problem),
        first_bytes_(static_cast<std::size_t>(problem.n * 2 * problem.k * 2)),
        second_bytes_(static_cast<std::size_t>(problem.n * problem.k * 2)),
        first_(make_reading_kernel(first_bytes_, 0, WeightLayout::plain)),
        second_(make_reading_kernel(second_bytes_, 0, WeightLayout::plain)) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands& operands, void*, Stream stream) const override {
    std::vector<bool> seen(static_cast<std::size_t>(problem_.moe.experts));
    for (std::int64_t pair = 0; pair < problem_.m * problem_.moe.topk; ++pair) {
      const auto expert = static_cast<std::size_t>(operands.topk_ids[pair]);
      if (seen[expert]) continue;
      seen[expert] = true;
      Operands slice;
      slice.w = static_cast<const char*>(operands.w) + expert * first_bytes_;
      GEMMTUNE_RETURN_IF_ERROR(first_->run(slice, nullptr, stream));
      slice.w = static_cast<const char*>(operands.w2) + expert * second_bytes_;
      GEMMTUNE_RETURN_IF_ERROR(second_->run(slice, nullptr, stream));
    }
    return {};
  }

 private:
  Problem problem_;
  std::size_t first_bytes_;
  std::size_t second_bytes_;
  std::unique_ptr<Kernel> first_;
  std::unique_ptr<Kernel> second_;
};

/// One number of tokens: operands, members, rounds.
class TokenRun {
 public:
  TokenRun(Device& device, const Plan& plan, std::int64_t tokens)
      : device_(device), plan_(plan), problem_(mixture_of(tokens)), sampler_(device, plan_.policy) {}

  Result<Row> run(const Weights& weights) {
    make_operands(weights);
    const auto rotation_of = [this](const Kernel& kernel) -> Result<Rotation*> {
      return kernel.weight_layout() == WeightLayout::plain ? &plain_ : &packed_;
    };
    auto ours = fastest_of_ours(device_, sampler_, problem_, plan_.tries, rotation_of);
    if (!ours.ok()) return ours.status();
    RoundMember read;
    read.kernel = std::make_unique<ReadingExperts>(problem_);
    read.timed.rotation = &plain_;
    GEMMTUNE_RETURN_IF_ERROR(make_ready(device_, sampler_, read));
    std::vector<Competitor> competitors;
    for (const bool packed : {false, true}) {
      if (packed && (!weights.packed_w1 || !weights.packed_w2)) continue;
      auto kernel = make_separate_experts(device_, problem_, packed, ids_);
      if (!kernel.ok()) continue;
      Competitor& library = competitors.emplace_back(Competitor{&separate_calls, {}});
      library.member.timed.rotation = *rotation_of(**kernel);
      library.member.timed.thread_pool = "openmp";
      library.member.kernel = std::move(*kernel);
      GEMMTUNE_RETURN_IF_ERROR(make_ready(device_, sampler_, library.member));
    }
    auto row = run_case(sampler_, *ours, read, competitors, plan_);
    if (!row.ok()) return row;
    row->line = "moe";
    row->m = problem_.m;
    return row;
  }

 private:
  void make_operands(const Weights& weights) {
    Random random(11);
    x_.resize(static_cast<std::size_t>(problem_.m * problem_.k));
    y_.resize(x_.size());
    fill_bf16(x_.data(), x_.size() * 2, 2);
    topk_weights_.assign(static_cast<std::size_t>(routed_pairs(problem_)), 0.125F);
    for (std::size_t i = 0; i < route_sets; ++i) ids_.push_back(routes_of(problem_, random));
    for (const auto& ids : ids_) {
      Operands operands;
      operands.x = x_.data();
      operands.w = weights.w1->data();
      operands.w2 = weights.w2->data();
      operands.y = y_.data();
      operands.ldx = operands.ldy = problem_.k;
      operands.topk_ids = ids.data();
      operands.topk_weights = topk_weights_.data();
      plain_.operands.push_back(operands);
      if (!weights.packed_w1 || !weights.packed_w2) continue;
      operands.w = weights.packed_w1->data();
      operands.w2 = weights.packed_w2->data();
      packed_.operands.push_back(operands);
    }
  }

  Device& device_;
  const Plan& plan_;
  Problem problem_;
  Sampler sampler_;
  std::vector<std::uint16_t> x_;
  std::vector<std::uint16_t> y_;
  std::vector<float> topk_weights_;
  std::vector<std::vector<std::int32_t>> ids_;
  Rotation plain_;
  Rotation packed_;
};

}  // namespace

Status run_mixtures(Device& device, const Plan& plan, const OnRow& on_row) {
  const auto weights = make_weights(device);
  if (!weights.ok()) return weights.status();
  for (const std::int64_t tokens : token_counts) {
    const auto row = TokenRun(device, plan, tokens).run(*weights);
    if (!row.ok()) return row.status();
    on_row(*row);
  }
  return {};
}

}  // namespace gemmtune::speed
