#include <algorithm>
#include <new>

#include "tuning/correctness_gate.h"

namespace gemmtune {
namespace {

constexpr std::size_t line_bytes = 64;
/// Floats from one scale to the next: each has the alignment that a problem promises of every pointer.
constexpr std::size_t scale_stride = 4;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Status copy_on_device(Device& device, void* to, const void* from, std::size_t bytes) {
  return device.copy_within(to, from, bytes);
}

Result<DeviceOperands> DeviceOperands::make(Device& device, const Problem& problem, Placement placement) {
  DeviceOperands operands(device, problem, placement);
  const auto x_bytes = static_cast<std::size_t>(bytes_of(problem.x_type, problem.m * problem.k));
  const std::size_t bias_bytes =
      problem.bias ? static_cast<std::size_t>(bytes_of(problem.y_type, problem.n)) : std::size_t{0};
  const struct {
    Tensor& tensor;
    std::size_t bytes;
  } wanted[] = {{operands.x_, x_bytes},
                {operands.w_, static_cast<std::size_t>(weight_bytes(problem))},
                {operands.bias_, bias_bytes},
                {operands.scales_, 2 * scale_stride * sizeof(float)}};
  for (const auto& [tensor, bytes] : wanted) {
    if (bytes == 0) continue;
    auto made = operands.tensor(bytes);
    if (!made.ok()) return made.status();
    tensor = std::move(made).value();
  }
  return operands;
}

// At a page's end the start keeps the promised alignment: up to a line behind the tensor is readable, and
// poisoned.
Result<DeviceOperands::Tensor> DeviceOperands::tensor(std::size_t bytes) const {
  const std::size_t multiple =
      placement_ == Placement::page_end ? static_cast<std::size_t>(problem_.alignment) : line_bytes;
  const std::size_t room = round_up(bytes, multiple);
  auto buffer = device_->allocate(room, placement_);
  if (!buffer.ok()) return buffer.status();
  Tensor made;
  made.buffer = std::move(buffer).value();
  made.data = made.buffer->data();
  made.bytes = bytes;
  GEMMTUNE_RETURN_IF_ERROR(device_->fill(made.data, poison_byte, room));
  return made;
}

Status DeviceOperands::fill(const HostOperands& host) {
  GEMMTUNE_RETURN_IF_ERROR(device_->copy_in(x_.data, host.x.data(), x_.bytes));
  GEMMTUNE_RETURN_IF_ERROR(device_->copy_in(w_.data, host.w.data(), w_.bytes));
  if (bias_.data != nullptr)
    GEMMTUNE_RETURN_IF_ERROR(device_->copy_in(bias_.data, host.bias.data(), bias_.bytes));
  float scales[2 * scale_stride] = {};
  scales[0] = host.x_scale;
  scales[scale_stride] = host.w_scale;
  GEMMTUNE_RETURN_IF_ERROR(device_->copy_in(scales_.data, scales, sizeof(scales)));
  return repack();
}

Status DeviceOperands::fill(const DeviceOperands& other) {
  GEMMTUNE_RETURN_IF_ERROR(copy_on_device(*device_, x_.data, other.x_.data, x_.bytes));
  GEMMTUNE_RETURN_IF_ERROR(copy_on_device(*device_, w_.data, other.w_.data, w_.bytes));
  if (bias_.data != nullptr)
    GEMMTUNE_RETURN_IF_ERROR(copy_on_device(*device_, bias_.data, other.bias_.data, bias_.bytes));
  GEMMTUNE_RETURN_IF_ERROR(copy_on_device(*device_, scales_.data, other.scales_.data, scales_.bytes));
  return repack();
}

Status DeviceOperands::pack(WeightLayout layout, const Tensor& packed) {
  GEMMTUNE_RETURN_IF_ERROR(device_->shuffle_weight(problem_, layout, w_.data, packed.data));
  return device_->synchronize();
}

Status DeviceOperands::repack() {
  for (const auto& [layout, packed] : packed_) GEMMTUNE_RETURN_IF_ERROR(pack(layout, packed));
  return {};
}

Result<Operands> DeviceOperands::operands(WeightLayout layout) {
  Operands operands;
  operands.x = x_.data;
  operands.w = w_.data;
  operands.bias = bias_.data;
  operands.ldx = problem_.k;
  if (problem_.scale_ab) {
    operands.x_scale = static_cast<const float*>(scales_.data);
    operands.w_scale = operands.x_scale + scale_stride;
  }
  if (layout == WeightLayout::plain) return operands;
  auto found = packed_.find(layout);
  if (found == packed_.end()) {
    const Result<std::size_t> bytes = device_->packed_bytes(problem_, layout);
    if (!bytes.ok()) return bytes.status();
    auto made = tensor(round_up(*bytes, line_bytes));
    if (!made.ok()) return made.status();
    GEMMTUNE_RETURN_IF_ERROR(pack(layout, *made));
    found = packed_.emplace(layout, std::move(made).value()).first;
  }
  operands.w = found->second.data;
  return operands;
}

}  // namespace gemmtune
