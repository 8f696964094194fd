#include <algorithm>
#include <new>

#include "base/rounding.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "measure/cold_pool.h"
#include "problem/operands.h"

namespace gemmtune {

std::vector<DeviceOperands::Part> DeviceOperands::parts(const HostOperands* host) const {
  const OperandShapes shapes = operand_shapes(problem_);
  const auto pairs = given_pairs(problem_);
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  const HostOperands none;
  const HostOperands& content = host == nullptr ? none : *host;
  const auto start = [](const auto& values) -> const void* {
    return values.empty() ? nullptr : values.data();
  };
  std::vector<Part> all{
      {&DeviceOperands::x_, size(shapes.x.bytes()), start(content.x)},
      {&DeviceOperands::w_, size(shapes.w.bytes()), start(content.w)},
      {&DeviceOperands::bias_, size(shapes.bias.bytes()), start(content.bias)},
      {&DeviceOperands::bias2_, size(shapes.bias2.bytes()), start(content.bias2)},
      {&DeviceOperands::x_scale_, size(shapes.x.scale_bytes()), start(content.x_scale)},
      {&DeviceOperands::w_scale_, size(shapes.w.scale_bytes()), start(content.w_scale)},
      {&DeviceOperands::x_global_scale_, size(shapes.x.global_scale_bytes()), start(content.x_global_scale)},
      {&DeviceOperands::w_global_scale_, size(shapes.w.global_scale_bytes()), start(content.w_global_scale)},
      {&DeviceOperands::w_zero_points_, size(shapes.w.zero_point_bytes()), start(content.w_zero_points)},
      {&DeviceOperands::w2_, size(shapes.w2.bytes()), start(content.w2)},
      {&DeviceOperands::w2_scale_, size(shapes.w2.scale_bytes()), start(content.w2_scale)},
      {&DeviceOperands::w2_global_scale_, size(shapes.w2.global_scale_bytes()),
       start(content.w2_global_scale)},
      {&DeviceOperands::w2_zero_points_, size(shapes.w2.zero_point_bytes()), start(content.w2_zero_points)},
      {&DeviceOperands::topk_ids_, size(pairs) * sizeof(std::int32_t), start(content.topk_ids)},
      {&DeviceOperands::topk_weights_, size(pairs) * sizeof(float), start(content.topk_weights)}};
  std::erase_if(all, [](const Part& part) { return part.bytes == 0; });
  return all;
}

Result<DeviceOperands> DeviceOperands::make(Device& device, const Problem& problem, Placement placement) {
  DeviceOperands operands(device, problem, placement);
  for (const Part& part : operands.parts(nullptr)) {
    GEMMTUNE_TRY(operands.*part.tensor, operands.tensor(part.bytes));
  }
  return operands;
}

// At a page's end the start keeps the promised alignment: up to a line behind the tensor is readable, and
// poisoned.
Result<DeviceOperands::Tensor> DeviceOperands::tensor(std::size_t bytes) const {
  const std::size_t multiple =
      placement_ == Placement::page_end ? static_cast<std::size_t>(problem_.alignment) : line_bytes;
  const std::size_t room = round_up(bytes, multiple);
  GEMMTUNE_TRY(auto buffer, device_->allocate(room, placement_));
  Tensor made;
  made.buffer = std::move(buffer);
  made.data = made.buffer->data();
  made.bytes = bytes;
  GEMMTUNE_RETURN_IF_ERROR(device_->fill(made.data, poison_byte, room));
  return made;
}

Status DeviceOperands::fill(const HostOperands& host) {
  for (const Part& part : parts(&host))
    GEMMTUNE_RETURN_IF_ERROR(device_->copy_in((this->*part.tensor).data, part.host, part.bytes));
  return repack();
}

Status DeviceOperands::fill(PlannedInputs& inputs, int threads) {
  for (const auto& [recipe, target] :
       {std::pair{&inputs.x, &x_}, std::pair{&inputs.w, &w_}, std::pair{&inputs.w2, &w2_},
        std::pair{&inputs.x_scale, &x_scale_}, std::pair{&inputs.w_scale, &w_scale_},
        std::pair{&inputs.w2_scale, &w2_scale_}, std::pair{&inputs.w_zero_points, &w_zero_points_},
        std::pair{&inputs.w2_zero_points, &w2_zero_points_}}) {
    if (recipe->count == 0) continue;
    const Status done = device_->fill_random(target->data, *recipe);
    if (done.code() == StatusCode::unsupported) {
      GEMMTUNE_RETURN_IF_ERROR(inputs.fill_all(threads));
      return fill(inputs.host);
    }
    if (!done.ok()) return done;
  }
  for (const Part& part : parts(&inputs.host))
    if (part.host != nullptr)
      GEMMTUNE_RETURN_IF_ERROR(device_->copy_in((this->*part.tensor).data, part.host, part.bytes));
  return repack();
}

Status DeviceOperands::fill(const DeviceOperands& other) {
  for (const Part& part : parts(nullptr))
    GEMMTUNE_RETURN_IF_ERROR(
        device_->copy_within((this->*part.tensor).data, (other.*part.tensor).data, part.bytes));
  return repack();
}

Status DeviceOperands::spread_x(std::int64_t ldx) {
  const MatrixShape x = operand_shapes(problem_).x;
  const std::int64_t lines = x.count * x.lines();
  GEMMTUNE_TRY(auto spread,
               tensor(static_cast<std::size_t>(bytes_of(x.type, (lines - 1) * ldx + x.line_elements()))));
  const std::int64_t from_step = bytes_of(x.type, x.line_elements());
  const std::int64_t to_step = bytes_of(x.type, ldx);
  for (std::int64_t line = 0; line < lines; ++line)
    GEMMTUNE_RETURN_IF_ERROR(device_->copy_within(static_cast<std::byte*>(spread.data) + line * to_step,
                                                  static_cast<const std::byte*>(x_.data) + line * from_step,
                                                  static_cast<std::size_t>(from_step)));
  x_ = std::move(spread);
  ldx_ = ldx;
  return {};
}

Status DeviceOperands::pack(WeightLayout layout, const Tensor& packed) {
  GEMMTUNE_RETURN_IF_ERROR(device_->pack_weight(problem_, layout, w_.data, packed.data));
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
  operands.ldx = ldx_;
  operands.x_batch_stride = operand_shapes(problem_).x.lines() * ldx_;
  operands.x_scale = x_scale_.data;
  operands.w_scale = w_scale_.data;
  operands.x_global_scale = x_global_scale_.data;
  operands.w_global_scale = w_global_scale_.data;
  operands.w_zero_points = w_zero_points_.data;
  operands.w2 = w2_.data;
  operands.w2_scale = w2_scale_.data;
  operands.w2_global_scale = w2_global_scale_.data;
  operands.w2_zero_points = w2_zero_points_.data;
  operands.bias2 = static_cast<const float*>(bias2_.data);
  operands.topk_ids = static_cast<const std::int32_t*>(topk_ids_.data);
  operands.topk_weights = static_cast<const float*>(topk_weights_.data);
  if (layout == WeightLayout::plain) return operands;
  auto found = packed_.find(layout);
  if (found == packed_.end()) {
    GEMMTUNE_TRY(const std::size_t bytes, device_->packed_bytes(problem_, layout));
    GEMMTUNE_TRY(auto made, tensor(round_up(bytes, line_bytes)));
    GEMMTUNE_RETURN_IF_ERROR(pack(layout, made));
    found = packed_.emplace(layout, std::move(made)).first;
  }
  operands.w = found->second.data;
  return operands;
}

}  // namespace gemmtune
