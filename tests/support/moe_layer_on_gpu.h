// A mixture of experts on a GPU that tests run with ids, weights and scales of their own.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "backends/backend.h"
#include "problem/operands.h"
#include "support/first_gpu.h"
#include "verify/inputs.h"

namespace gemmtune {

/// A layer of one call with operands of its own.
class MoeLayerOnGpu {
 public:
  explicit MoeLayerOnGpu(const Problem& problem) : problem_(problem), shapes_(operand_shapes(problem)) {
    auto inputs = plan_inputs(problem, 1);
    EXPECT_TRUE(inputs.ok() && inputs->fill_all(2).ok());
    host_ = inputs->host;
    x_ = on_device(host_.x);
    w_ = on_device(host_.w);
    w2_ = on_device(host_.w2);
    const auto pairs = static_cast<std::size_t>(given_pairs(problem));
    ids_ = allocated(pairs * 4);
    weights_ = allocated(pairs * 4);
    y_ = allocated(static_cast<std::size_t>(shapes_.y.bytes()));
    if (shapes_.w.scale.type != ScaleType::none) {
      w_scale_ = on_device(host_.w_scale);
      w2_scale_ = on_device(host_.w2_scale);
    }
    if (shapes_.w.scale.global) {
      w_global_scale_ = on_device(host_.w_global_scale);
      w2_global_scale_ = on_device(host_.w2_global_scale);
    }
    if (shapes_.w.scale.zero_points) {
      w_zero_points_ = on_device(host_.w_zero_points);
      w2_zero_points_ = on_device(host_.w2_zero_points);
    }
    EXPECT_TRUE(gpu()->copy_in(weights_->data(), host_.topk_weights.data(), pairs * 4).ok());
  }
  const std::vector<std::int32_t>& ids() const { return host_.topk_ids; }
  const std::vector<float>& weights() const { return host_.topk_weights; }
  void set_weights(const std::vector<float>& weights) {
    EXPECT_TRUE(gpu()->copy_in(weights_->data(), weights.data(), weights.size() * 4).ok());
  }

  /// The same scale for all of w1 and of w2, as it is stored: a byte, or two of int4 weights.
  void set_scales(unsigned of_w, unsigned of_w2) {
    for (auto [code, bytes, to] : {std::tuple{of_w, host_.w_scale.size(), w_scale_.get()},
                                   std::tuple{of_w2, host_.w2_scale.size(), w2_scale_.get()}}) {
      const bool two = bytes_of(shapes_.w.scale.type) == 2;
      std::vector<std::byte> all(bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        all[i] = static_cast<std::byte>(code >> (two && i % 2 == 1 ? 8 : 0) & 0xffU);
      EXPECT_TRUE(gpu()->copy_in(to->data(), all.data(), bytes).ok());
    }
  }

  /// y as float32 bits of bf16. `byte`: what the workspace is filled with; −1: graphs of several launches, each in what the one before left.
  /// `before`: what is enqueued right in front of the launch.
  std::vector<float> run(
      const Kernel& kernel, const std::vector<std::int32_t>& ids, int byte = 0xff,
      const std::function<void()>& before = [] {}) {
    EXPECT_TRUE(gpu()->copy_in(ids_->data(), ids.data(), ids.size() * 4).ok());
    auto workspace = allocated(kernel.workspace_bytes());
    if (byte >= 0) {
      EXPECT_TRUE(gpu()->fill(workspace->data(), byte, workspace->bytes()).ok());
    }
    Operands o;
    o.x = x_->data();
    o.w = w_->data();
    o.w2 = w2_->data();
    if (w_scale_ != nullptr) {
      o.w_scale = w_scale_->data();
      o.w2_scale = w2_scale_->data();
    }
    if (w_global_scale_ != nullptr) {
      o.w_global_scale = w_global_scale_->data();
      o.w2_global_scale = w2_global_scale_->data();
    }
    if (w_zero_points_ != nullptr) {
      o.w_zero_points = w_zero_points_->data();
      o.w2_zero_points = w2_zero_points_->data();
    }
    o.y = y_->data();
    o.ldx = o.ldy = problem_.k;
    o.topk_ids = static_cast<const std::int32_t*>(ids_->data());
    o.topk_weights = static_cast<const float*>(weights_->data());
    if (byte < 0) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(gpu()->fill(y_->data(), 0xff, y_->bytes()).ok());
        SampleRequest request;
        request.kernel = &kernel;
        request.rotation = {&o, 1};
        request.launches = 3;
        request.workspace = workspace->data();
        const auto sampled = gpu()->sample(request);
        EXPECT_TRUE(sampled.ok()) << sampled.message();
      }
    } else {
      before();
      const Status ran = kernel.run(o, workspace->data(), {});
      EXPECT_TRUE(ran.ok()) << ran.message();
    }
    const Status done = gpu()->synchronize();
    EXPECT_TRUE(done.ok()) << done.message();
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(problem_.m * problem_.k));
    EXPECT_TRUE(gpu()->copy_out(bits.data(), y_->data(), bits.size() * 2).ok());
    std::vector<float> values;
    for (const std::uint16_t each : bits)
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(each) << 16));
    return values;
  }

 private:
  static std::unique_ptr<Buffer> allocated(std::size_t bytes) {
    auto buffer = gpu()->allocate(bytes, Placement::guarded);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    return std::move(*buffer);
  }
  static std::unique_ptr<Buffer> on_device(const std::vector<std::byte>& bytes) {
    auto buffer = allocated(bytes.size());
    EXPECT_TRUE(gpu()->copy_in(buffer->data(), bytes.data(), bytes.size()).ok());
    return buffer;
  }

  Problem problem_;
  OperandShapes shapes_;
  HostOperands host_;
  std::unique_ptr<Buffer> x_, w_, w2_, w_scale_, w2_scale_, w_global_scale_, w2_global_scale_, w_zero_points_,
      w2_zero_points_, ids_, weights_, y_;
};

inline std::unique_ptr<Kernel> default_kernel(const KernelFamily& family, const Problem& problem) {
  auto kernel = family.build(problem, family.default_config(problem));
  EXPECT_TRUE(kernel.ok()) << kernel.message();
  return kernel.ok() ? std::move(*kernel) : nullptr;
}

}  // namespace gemmtune
