// The output checker of a device on mixtures of experts: its reference is the host's, and it finds what the host finds in
// kernels that are broken on purpose.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/output_checker.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "problem/operands.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"
#include "verify/reference.h"

namespace gemmtune::testing_mixtures {

inline int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

inline Problem routed(Problem problem, std::int32_t experts, std::int32_t topk) {
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

/// Every element of the reference on the device against the host's. `ids`: in place of random ones. "", or the first difference.
inline std::string difference_of_references(Device& device, const Problem& problem,
                                            const std::vector<std::int32_t>& ids = {}) {
  auto host = make_inputs(problem, 5);
  if (!host.ok()) return host.message();
  if (!ids.empty()) host->topk_ids = ids;
  auto operands = DeviceOperands::make(device, problem, Placement::page_end);
  if (!operands.ok()) return operands.message();
  if (const Status filled = operands->fill(*host); !filled.ok()) return filled.message();
  const auto expected = compute_reference(problem, *host, {.threads = cores(), .max_complete_flops = 1e18});
  if (!expected.ok()) return expected.message();
  const auto checker = device.output_checker(problem);
  if (!checker.ok()) return checker.message();
  const Status computed = (*checker)->compute_reference(*operands->operands(WeightLayout::plain));
  if (!computed.ok()) return computed.message();
  const bool has_empty_slots = std::find(ids.begin(), ids.end(), -1) != ids.end();
  std::vector<double> values(static_cast<std::size_t>(output_columns(problem)));
  std::vector<float> magnitudes(values.size());
  for (std::int64_t row = 0; row < problem.m; ++row) {
    if (const Status read = (*checker)->read_row(row, values, magnitudes); !read.ok()) return read.message();
    for (std::size_t column = 0; column < values.size(); ++column) {
      const std::size_t at = static_cast<std::size_t>(row) * values.size() + column;
      const double magnitude = expected->magnitudes[at];
      const auto size = static_cast<double>(magnitudes[column]);
      if (std::fabs(values[column] - expected->values[at]) <= 1e-12 * magnitude &&
          std::fabs(size - magnitude) <= 1e-4 * magnitude && (magnitude > 0 || has_empty_slots))
        continue;
      return fmt::format("{}: row {}, column {}: {} ({}) instead of {} ({})", print(problem), row, column,
                         values[column], size, expected->values[at], magnitude);
    }
  }
  return {};
}

/// Every type and form, then every kind of route, on tiles with tails.
inline void expect_the_hosts_reference(Device& device, const testing_problems::Shape& shape) {
  for (const Problem& problem : testing_problems::mixtures(shape))
    EXPECT_EQ(difference_of_references(device, problem), "");
  using testing_problems::moe_problem;
  Problem swiglu = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {5, 72, 24});
  swiglu.moe.activation = Activation::swiglu;
  EXPECT_EQ(difference_of_references(device, swiglu), "");
  const Problem plain = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {70, 34, 40});
  EXPECT_EQ(difference_of_references(device, routed(plain, 3, 1), std::vector<std::int32_t>(70, 2)), "");
  std::vector<std::int32_t> padded(140);
  for (std::size_t i = 0; i < padded.size(); ++i)
    padded[i] = i % 5 == 0 || i / 2 % 7 == 3 || i >= 130 ? -1 : static_cast<std::int32_t>(i % 3);
  EXPECT_EQ(difference_of_references(device, routed(plain, 3, 2), padded), "");
  EXPECT_EQ(difference_of_references(device, routed(plain, 3, 1), std::vector<std::int32_t>(70, -1)), "");
  EXPECT_EQ(difference_of_references(device, routed(plain, 4, 4)), "");
  EXPECT_EQ(difference_of_references(device, routed(plain, 90, 2)), "");
  Problem one = moe_problem(DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_1x128, {1, 130, 300});
  one.y_type = DataType::f16;
  EXPECT_EQ(difference_of_references(device, one), "");
}

/// A right kernel, with something done to its operands before it runs or to y after it.
class AlteredMixture final : public Kernel {
 public:
  using Before = std::function<void(Operands&)>;
  using After = std::function<void(const Operands&)>;
  AlteredMixture(Device& device, const Kernel& right, Before before, After after)
      : device_(device), right_(right), before_(std::move(before)), after_(std::move(after)) {}
  std::size_t workspace_bytes() const override { return right_.workspace_bytes(); }
  WeightLayout weight_layout() const override { return right_.weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Operands altered = operands;
    if (before_) before_(altered);
    GEMMTUNE_RETURN_IF_ERROR(right_.run(altered, workspace, stream));
    GEMMTUNE_RETURN_IF_ERROR(device_.synchronize());
    if (after_) after_(operands);
    return {};
  }

 private:
  Device& device_;
  const Kernel& right_;
  Before before_;
  After after_;
};

inline KernelVerifierOptions verified_on_device(bool device) {
  KernelVerifierOptions options;
  options.reference_threads = cores();
  const double most = std::numeric_limits<double>::infinity();
  options.max_host_flops = options.max_host_bytes = device ? 0 : most;
  options.max_host_elements = device ? 0 : std::numeric_limits<std::int64_t>::max();
  return options;
}

/// A copy of an operand with some of it changed.
template <typename Element>
class Changed {
 public:
  Changed(Device& device, std::size_t count) : device_(device), values_(count) {
    auto buffer = device.allocate(count * sizeof(Element), Placement::plain);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    if (buffer.ok()) buffer_ = std::move(*buffer);
  }
  template <typename Change>
  const Element* operator()(const void* from, const Change& change) {
    EXPECT_TRUE(device_.copy_out(values_.data(), from, buffer_->bytes()).ok());
    change(values_);
    EXPECT_TRUE(device_.copy_in(buffer_->data(), values_.data(), buffer_->bytes()).ok());
    return static_cast<const Element*>(buffer_->data());
  }

 private:
  Device& device_;
  std::vector<Element> values_;
  std::unique_ptr<Buffer> buffer_;
};

/// bf16, five experts of which one is shared, three a token; kernels of the family.
class MixtureFaults {
 public:
  MixtureFaults(Device& device, const std::string& family)
      : device_(device), family_(device.find_family(family)) {
    problem_.moe.shared_experts = 1;
    problem_.bias = true;
  }

  void expect_found() {
    ASSERT_NE(family_, nullptr);
    auto host = KernelVerifier::make(device_, problem_, verified_on_device(false));
    auto there = KernelVerifier::make(device_, problem_, verified_on_device(true));
    ASSERT_TRUE(host.ok() && there.ok()) << host.message() << there.message();
    EXPECT_FALSE(host->on_device());
    EXPECT_TRUE(there->on_device());
    const auto expect = [&](const char* what, const Kernel& right, const AlteredMixture::Before& before,
                            const AlteredMixture::After& after, const std::string& phrase) {
      const AlteredMixture kernel(device_, right, before, after);
      const Outcome one = host->verify_quickly({&kernel});
      const Outcome other = there->verify_quickly({&kernel});
      EXPECT_EQ(other.reason.substr(0, other.reason.find(':')), phrase) << what << ": " << other.reason;
      EXPECT_EQ(other.kind, one.kind) << what;
      EXPECT_EQ(other.reason, one.reason) << what;
      EXPECT_EQ(other.err_ratio, one.err_ratio) << what;
      EXPECT_NEAR(other.error.rms, one.error.rms, 1e-9) << what;
    };
    const auto right = build(problem_);
    Problem without =
        problem_;  // the shared expert is the last one, so the kernel finds all others where they are
    --without.moe.experts;
    --without.moe.topk;
    without.moe.shared_experts = 0;
    const auto unshared = build(without);
    ASSERT_NE(right, nullptr);
    ASSERT_NE(unshared, nullptr);
    const auto pairs = static_cast<std::size_t>(given_pairs(problem_));
    Changed<std::int32_t> ids(device_, pairs);
    Changed<float> weights(device_, pairs);
    const OperandShapes shapes = operand_shapes(problem_);
    Changed<std::uint16_t> x(device_, static_cast<std::size_t>(shapes.x.elements()));
    Changed<std::uint16_t> w2(device_, static_cast<std::size_t>(shapes.w2.elements()));
    const auto lose_last = [](std::int64_t columns, std::int64_t lost) {
      return [=](std::vector<std::uint16_t>& values) {
        for (std::size_t i = 0; i < values.size(); ++i)
          if (static_cast<std::int64_t>(i) % columns >= columns - lost) values[i] = 0;
      };
    };
    expect("right", *right, {}, {}, "");
    expect(
        "a wrong expert of one token", *right,
        [&](Operands& o) {
          o.topk_ids = ids(o.topk_ids, [&](auto& all) {
            std::int32_t other = 0;
            while (other == all[pairs - 1] || other == all[pairs - 2]) ++other;
            all[pairs - 1] = other;
          });
        },
        {}, check_phrase::element);
    expect("no shared expert", *unshared, {}, {}, check_phrase::element);
    expect(
        "routing weights applied twice", *right,
        [&](Operands& o) {
          o.topk_weights = weights(o.topk_weights, [](auto& all) {
            for (float& weight : all) weight *= weight;
          });
        },
        {}, check_phrase::element);
    expect(
        "the last of k lost in the first stage", *right,
        [&](Operands& o) { o.x = x(o.x, lose_last(problem_.k, 2)); }, {}, check_phrase::element);
    expect(
        "the last of k lost in the second stage", *right,
        [&](Operands& o) { o.w2 = w2(o.w2, lose_last(problem_.n, 2)); }, {}, check_phrase::element);
    const auto next_expert = [](std::int64_t columns) {
      return [=](std::vector<float>& values) {
        std::rotate(values.begin(), values.begin() + columns, values.end());
      };
    };
    Changed<float> bias1(device_, static_cast<std::size_t>(shapes.bias.elements()));
    Changed<float> bias2(device_, static_cast<std::size_t>(shapes.bias2.elements()));
    expect(
        "bias1 of the next expert", *right,
        [&](Operands& o) { o.bias = bias1(o.bias, next_expert(shapes.bias.columns)); }, {},
        check_phrase::element);
    expect(
        "bias2 of the next expert", *right,
        [&](Operands& o) { o.bias2 = bias2(o.bias2, next_expert(shapes.bias2.columns)); }, {},
        check_phrase::element);
    Problem no_bias = problem_;
    no_bias.bias = false;
    const auto unbiased = build(no_bias);
    ASSERT_NE(unbiased, nullptr);
    expect("no biases", *unbiased, {}, {}, check_phrase::element);
    expect(
        "a token that is another's", *right, {},
        [&](const Operands& o) {
          auto* y = static_cast<std::uint16_t*>(o.y);
          EXPECT_TRUE(device_.copy_within(y + 11 * o.ldy, y, static_cast<std::size_t>(problem_.k) * 2).ok());
        },
        check_phrase::element);
    expect(
        "the last element far off", *right, {},
        [&](const Operands& o) {
          const std::uint16_t thousand = 0x447a;
          auto* last = static_cast<std::uint16_t*>(o.y) + 11 * o.ldy + problem_.k - 1;
          EXPECT_TRUE(device_.copy_in(last, &thousand, sizeof(thousand)).ok());
        },
        check_phrase::element);
    expect(
        "the end of a row that is not written", *right, {},
        [&](const Operands& o) {
          EXPECT_TRUE(
              device_.fill(static_cast<std::uint16_t*>(o.y) + 3 * o.ldy + problem_.k - 4, poison_byte, 8)
                  .ok());
        },
        check_phrase::unwritten);
    const KernelOfClass kernels[] = {{right.get()}};
    const auto full = there->verify_fully(kernels);
    ASSERT_TRUE(full.ok()) << full.message();
    EXPECT_EQ(full->front().reason, "");
  }

 private:
  std::unique_ptr<Kernel> build(const Problem& problem) const {
    auto kernel = family_->build(problem, family_->default_config(problem));
    EXPECT_TRUE(kernel.ok()) << kernel.message();
    return kernel.ok() ? std::move(*kernel) : nullptr;
  }

  Device& device_;
  const KernelFamily* family_;
  Problem problem_ =
      testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {12, 40, 72});
};

}  // namespace gemmtune::testing_mixtures
