#include "speed/separate_experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "numbers/bfloat16.h"

namespace gemmtune::speed {
namespace {

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Multiplications {
  std::unique_ptr<Kernel> first;
  std::unique_ptr<Kernel> second;
};

class SeparateExperts final : public Kernel {
 public:
  SeparateExperts(const Problem& mixture, bool packed, std::size_t first_bytes, std::size_t second_bytes)
      : problem_(mixture), packed_(packed), first_bytes_(first_bytes), second_bytes_(second_bytes) {}

  void add(std::int64_t tokens, Multiplications kernels) {
    scratch_ = std::max({scratch_, kernels.first->workspace_bytes(), kernels.second->workspace_bytes()});
    kernels_[tokens] = std::move(kernels);
  }
  bool has(std::int64_t tokens) const { return kernels_.contains(tokens); }

  std::size_t workspace_bytes() const override {
    const auto tokens = static_cast<std::size_t>(problem_.m);
    const auto k = static_cast<std::size_t>(problem_.k);
    const auto n = static_cast<std::size_t>(problem_.n);
    return round_up(scratch_) + 2 * round_up(tokens * k * 2) + round_up(tokens * n * 4) +
           round_up(tokens * n * 2) + round_up(tokens * k * 4);
  }
  WeightLayout weight_layout() const override { return packed_ ? WeightLayout::onednn : WeightLayout::plain; }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const Memory memory = lay_out(static_cast<char*>(workspace));
    std::fill_n(memory.sums, problem_.m * problem_.k, 0.0F);
    std::vector<std::int64_t> pairs;
    for (std::int32_t expert = 0; expert < problem_.moe.experts; ++expert) {
      pairs.clear();
      for (std::int64_t pair = 0; pair < problem_.m * problem_.moe.topk; ++pair)
        if (operands.topk_ids[pair] == expert) pairs.push_back(pair);
      if (!pairs.empty()) GEMMTUNE_RETURN_IF_ERROR(run_expert(operands, expert, pairs, {memory, stream}));
    }
    auto* y = static_cast<std::uint16_t*>(operands.y);
    for (std::int64_t i = 0; i < problem_.m * problem_.k; ++i) y[i] = f32_to_bf16(memory.sums[i]);
    return {};
  }

 private:
  struct Memory {
    void* scratch;
    std::uint16_t* x;       // [tokens][k]
    std::uint16_t* out;     // [tokens][k]
    std::uint16_t* halves;  // [tokens][2n]
    std::uint16_t* hidden;  // [tokens][n]
    float* sums;            // [m][k]
  };
  struct Place {
    const Memory& memory;
    Stream stream;
  };

  Memory lay_out(char* at) const {
    const auto elements = [&](std::int64_t columns, std::size_t bytes) {
      char* here = at;
      at += round_up(static_cast<std::size_t>(problem_.m * columns) * bytes);
      return here;
    };
    Memory memory{};
    memory.scratch = at;
    at += round_up(scratch_);
    memory.x = reinterpret_cast<std::uint16_t*>(elements(problem_.k, 2));
    memory.out = reinterpret_cast<std::uint16_t*>(elements(problem_.k, 2));
    memory.halves = reinterpret_cast<std::uint16_t*>(elements(2 * problem_.n, 2));
    memory.hidden = reinterpret_cast<std::uint16_t*>(elements(problem_.n, 2));
    memory.sums = reinterpret_cast<float*>(elements(problem_.k, 4));
    return memory;
  }

  Status run_expert(const Operands& operands, std::int64_t expert, const std::vector<std::int64_t>& pairs,
                    Place place) const {
    const Memory& memory = place.memory;
    const auto count = static_cast<std::int64_t>(pairs.size());
    const auto* x = static_cast<const std::uint16_t*>(operands.x);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(memory.x + i * problem_.k,
                  x + pairs[static_cast<std::size_t>(i)] / problem_.moe.topk * operands.ldx,
                  static_cast<std::size_t>(problem_.k) * 2);
    const Multiplications& kernels = kernels_.at(count);
    const auto expert_at = static_cast<std::size_t>(expert);
    GEMMTUNE_RETURN_IF_ERROR(
        kernels.first->run({.x = memory.x,
                            .w = static_cast<const char*>(operands.w) + expert_at * first_bytes_,
                            .y = memory.halves,
                            .ldx = problem_.k,
                            .ldy = 2 * problem_.n},
                           memory.scratch, place.stream));
    activate(memory, count);
    GEMMTUNE_RETURN_IF_ERROR(
        kernels.second->run({.x = memory.hidden,
                             .w = static_cast<const char*>(operands.w2) + expert_at * second_bytes_,
                             .y = memory.out,
                             .ldx = problem_.n,
                             .ldy = problem_.k},
                            memory.scratch, place.stream));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pair = pairs[static_cast<std::size_t>(i)];
      const float weight = operands.topk_weights[pair];
      float* sums = memory.sums + pair / problem_.moe.topk * problem_.k;
      for (std::int64_t k = 0; k < problem_.k; ++k)
        sums[k] += weight * bf16_to_f32(memory.out[i * problem_.k + k]);
    }
    return {};
  }

  void activate(const Memory& memory, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t n = 0; n < problem_.n; ++n) {
        const float gate = bf16_to_f32(memory.halves[i * 2 * problem_.n + n]);
        const float up = bf16_to_f32(memory.halves[i * 2 * problem_.n + problem_.n + n]);
        memory.hidden[i * problem_.n + n] = f32_to_bf16(gate / (1 + std::exp(-gate)) * up);
      }
  }

  Problem problem_;
  bool packed_;
  std::size_t first_bytes_;  // of an expert
  std::size_t second_bytes_;
  std::size_t scratch_ = 0;
  std::map<std::int64_t, Multiplications> kernels_;  // by tokens
};

Result<std::unique_ptr<Kernel>> library_kernel(Device& device, const Problem& problem) {
  const auto candidate = device.baseline(problem);
  if (!candidate.ok()) return candidate.status();
  return device.build(*candidate, problem);
}

Problem dense(const Problem& mixture, bool packed) {
  Problem problem = default_problem(Operation::a16w16);
  problem.x_type = problem.w_type = problem.y_type = mixture.x_type;
  problem.weight_layout = packed ? WeightLayout::onednn : WeightLayout::plain;
  return problem;
}

}  // namespace

Problem first_of_expert(const Problem& mixture, std::int64_t m, bool packed) {
  Problem problem = dense(mixture, packed);
  problem.m = m;
  problem.n = 2 * mixture.n;
  problem.k = mixture.k;
  return problem;
}

Problem second_of_expert(const Problem& mixture, std::int64_t m, bool packed) {
  Problem problem = dense(mixture, packed);
  problem.m = m;
  problem.n = mixture.k;
  problem.k = mixture.n;
  return problem;
}

Result<std::unique_ptr<Kernel>> make_separate_experts(Device& device, const Problem& mixture, bool packed,
                                                      std::span<const std::vector<std::int32_t>> ids) {
  const WeightLayout layout = packed ? WeightLayout::onednn : WeightLayout::plain;
  const auto first_bytes = device.packed_bytes(first_of_expert(mixture, 1, packed), layout);
  if (!first_bytes.ok()) return first_bytes.status();
  const auto second_bytes = device.packed_bytes(second_of_expert(mixture, 1, packed), layout);
  if (!second_bytes.ok()) return second_bytes.status();
  auto made = std::make_unique<SeparateExperts>(mixture, packed, *first_bytes, *second_bytes);
  for (const auto& routes : ids)
    for (std::int32_t expert = 0; expert < mixture.moe.experts; ++expert) {
      const auto tokens = std::count(routes.begin(), routes.end(), expert);
      if (tokens == 0 || made->has(tokens)) continue;
      auto first = library_kernel(device, first_of_expert(mixture, tokens, packed));
      if (!first.ok()) return first.status();
      auto second = library_kernel(device, second_of_expert(mixture, tokens, packed));
      if (!second.ok()) return second.status();
      made->add(tokens, {std::move(*first), std::move(*second)});
    }
  return std::unique_ptr<Kernel>(std::move(made));
}

}  // namespace gemmtune::speed
