#include "dispatch/empty_sum.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "dispatch/weights.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

class HostEmptySum : public Kernel {
 public:
  explicit HostEmptySum(const Problem& problem) : problem_(problem) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return problem_.weight_layout; }

  Status run(const Operands& operands, void*, Stream) const override {
    const std::int64_t element = bytes_of(problem_.y_type, 1);
    const auto row_bytes = static_cast<std::size_t>(problem_.n * element);
    for (std::int64_t batch = 0; batch < problem_.batch; ++batch)
      for (std::int64_t row = 0; row < problem_.m; ++row) {
        std::byte* const to = static_cast<std::byte*>(operands.y) +
                              (batch * operands.y_batch_stride + row * operands.ldy) * element;
        if (operands.bias == nullptr) {
          std::memset(to, 0, row_bytes);
        } else {
          std::memcpy(to, operands.bias, row_bytes);
        }
      }
    return {};
  }

 private:
  Problem problem_;
};

class DeviceEmptySum : public Kernel {
 public:
  DeviceEmptySum(const Problem& least, std::unique_ptr<Kernel> kernel, std::unique_ptr<Buffer> zeros)
      : least_(least), zeros_(std::move(zeros)), kernel_(std::move(kernel)) {}
  std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  WeightLayout weight_layout() const override { return kernel_->weight_layout(); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Operands zero = operands;
    zero.x = zero.w = zero.x_scale = zero.w_scale = zeros_->data();
    zero.x_global_scale = zero.w_global_scale = zero.w_zero_points = zeros_->data();
    zero.x_scale_step = zero.w_scale_step = 1;
    zero.ldx = least_.x_order == Order::row_major ? least_.k : least_.m;
    zero.x_batch_stride = least_.m * zero.ldx;
    return kernel_->run(zero, workspace, stream);
  }

 private:
  Problem least_;
  std::unique_ptr<Buffer> zeros_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Kernel> host_empty_sum(const Problem& problem) {
  return std::make_unique<HostEmptySum>(problem);
}

Result<std::unique_ptr<Kernel>> device_empty_sum(Device& device, const Problem& least,
                                                 std::unique_ptr<Kernel> kernel) {
  const OperandShapes shapes = operand_shapes(least);
  std::size_t bytes = static_cast<std::size_t>(
      std::max({shapes.x.bytes(), shapes.w.bytes(), shapes.x.scale_bytes(), shapes.w.scale_bytes()}));
  if (kernel->weight_layout() != WeightLayout::plain) {
    GEMMTUNE_TRY(const auto packed, packed_weight_bytes(device, least, kernel->weight_layout()));
    bytes = std::max(bytes, packed);
  }
  GEMMTUNE_TRY(auto zeros, device.allocate(bytes, Placement::plain));
  GEMMTUNE_RETURN_IF_ERROR(device.fill(zeros->data(), 0, bytes));
  GEMMTUNE_RETURN_IF_ERROR(device.synchronize());
  return std::make_unique<DeviceEmptySum>(least, std::move(kernel), std::move(zeros));
}

}  // namespace gemmtune
